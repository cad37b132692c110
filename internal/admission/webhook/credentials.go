package webhook

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Credentials are sent to webhooks, selected by the server's name ("Authenticate API servers" in
// the reference of admission webhooks). The zero value is empty.
type Credentials struct{ config *clientcmdapi.Config }

// LoadCredentials reads a kubeconfig file; "" means no file. Its users are named after servers:
// HOST, or HOST:PORT unless it is port 443 of a Service. "*" replaces the first segments of a name;
// "*" alone matches every server.
func LoadCredentials(path string) (Credentials, error) {
	if path == "" {
		return Credentials{}, nil
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return Credentials{}, fmt.Errorf("credentials for webhooks: %w", err)
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return Credentials{}, fmt.Errorf("credentials for webhooks: %w", err)
	}
	c := Credentials{config}
	for name := range config.AuthInfos {
		if _, err := c.of(name); err != nil {
			return Credentials{}, fmt.Errorf("credentials for webhooks: user %q in %s: %w", name, path, err)
		}
	}
	return c, nil
}

// forServer returns the credentials for a server, HOST or HOST:PORT; nil if there are none.
func (c Credentials) forServer(server string) (*rest.Config, error) {
	if c.config == nil {
		return nil, nil
	}
	for _, name := range namesOf(server) {
		if _, ok := c.config.AuthInfos[name]; ok {
			return c.of(name)
		}
	}
	return nil, nil
}

// transport returns a transport that sends the server its credentials.
func (c Credentials) transport(server string, base *http.Transport) (http.RoundTripper, error) {
	user, err := c.forServer(server)
	if err != nil || user == nil {
		return base, err
	}
	secure, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: user.TLSClientConfig})
	if err != nil {
		return nil, err
	}
	if secure != nil {
		base.TLSClientConfig.Certificates, base.TLSClientConfig.GetClientCertificate = secure.Certificates, secure.GetClientCertificate
	}
	return rest.HTTPWrappersForConfig(user, base)
}

// namesOf returns the names that match a server's credentials, the most specific first.
func namesOf(server string) []string {
	names := []string{server}
	host, port := server, ""
	if h, p, err := net.SplitHostPort(server); err == nil {
		host, port = h, ":"+p
	}
	parts := strings.Split(host, ".")
	for i := 1; i < len(parts); i++ {
		names = append(names, "*."+strings.Join(parts[i:], ".")+port)
	}
	return append(names, "*")
}

// of returns one user's credentials.
func (c Credentials) of(name string) (*rest.Config, error) {
	one := clientcmdapi.NewConfig()
	one.AuthInfos["user"] = c.config.AuthInfos[name]
	one.Clusters["server"] = &clientcmdapi.Cluster{Server: "https://" + strings.ReplaceAll(name, "*", "any")}
	one.Contexts["context"] = &clientcmdapi.Context{AuthInfo: "user", Cluster: "server"}
	return clientcmd.NewNonInteractiveClientConfig(*one, "context", &clientcmd.ConfigOverrides{}, nil).ClientConfig()
}
