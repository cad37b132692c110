package envtest

import (
	"errors"
	"io"
	"log/slog"
	"net/url"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/knarr-project/knarr/knarrtest"
)

// ControlPlane is an API server with its store.
type ControlPlane struct {
	APIServer *APIServer
	cluster   *knarrtest.Cluster
}

// APIServer configures the API server.
type APIServer struct {
	// Out and Err receive the log; nil drops it. There is one log: it goes to Err, or to Out if Err
	// is nil.
	Out, Err io.Writer
	args     *Arguments
}

// Configure returns the arguments, to be changed before the start.
func (s *APIServer) Configure() *Arguments {
	if s.args == nil {
		s.args = EmptyArguments()
	}
	return s.args
}

// GetAPIServer returns the API server, to be configured before the start.
func (c *ControlPlane) GetAPIServer() *APIServer {
	if c.APIServer == nil {
		c.APIServer = &APIServer{}
	}
	return c.APIServer
}

// Start returns when the API server is ready.
func (c *ControlPlane) Start() error {
	if c.cluster != nil {
		return errors.New("the control plane runs already")
	}
	server := c.GetAPIServer()
	options := []knarrtest.Option{knarrtest.WithoutControllers(), knarrtest.WithoutScheduler(), knarrtest.WithFlags(server.Configure().AsStrings(nil)...)}
	log := server.Err
	if log == nil {
		log = server.Out
	}
	if log != nil {
		options = append(options, knarrtest.WithLog(slog.New(slog.NewTextHandler(log, nil))))
	}
	cluster, err := knarrtest.New(options...)
	if err != nil {
		return err
	}
	c.cluster = cluster
	return nil
}

// Stop stops the API server. It is no error if the server does not run.
func (c *ControlPlane) Stop() error {
	if c.cluster == nil {
		return nil
	}
	err := c.cluster.Stop()
	c.cluster = nil
	return err
}

// APIURL returns the API server's URL, or nil if it does not run.
func (c *ControlPlane) APIURL() *url.URL {
	if c.cluster == nil {
		return nil
	}
	at, err := url.Parse(c.cluster.Config().Host)
	if err != nil {
		return nil
	}
	return at
}

// User is a user's name and groups.
type User struct {
	Name   string
	Groups []string
}

// AuthenticatedUser is a user with credentials.
type AuthenticatedUser struct{ config *rest.Config }

// Config returns the user's configuration.
func (u *AuthenticatedUser) Config() *rest.Config { return u.config }

// KubeConfig returns the configuration as a kubeconfig file.
func (u AuthenticatedUser) KubeConfig() ([]byte, error) { return kubeconfigOf(u.config) }

// AddUser gives a user access by a client certificate. base provides further settings of the
// result.
func (c *ControlPlane) AddUser(user User, base *rest.Config) (*AuthenticatedUser, error) {
	if c.cluster == nil {
		return nil, errors.New("no user can be added before the control plane has started")
	}
	access, config := c.cluster.As(user.Name, user.Groups...), &rest.Config{}
	if base != nil {
		config = rest.CopyConfig(base)
	}
	config.Host = access.Host
	config.TLSClientConfig = access.TLSClientConfig
	return &AuthenticatedUser{config: config}, nil
}

// kubeconfigOf formats a configuration as a kubeconfig file.
func kubeconfigOf(c *rest.Config) ([]byte, error) {
	const name = "envtest"
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: c.Host, CertificateAuthority: c.CAFile, CertificateAuthorityData: c.CAData, InsecureSkipTLSVerify: c.Insecure, TLSServerName: c.ServerName,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificate: c.CertFile, ClientCertificateData: c.CertData, ClientKey: c.KeyFile, ClientKeyData: c.KeyData,
			Token: c.BearerToken, TokenFile: c.BearerTokenFile, Username: c.Username, Password: c.Password,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}

// Arguments are flags of the API server.
type Arguments struct {
	names  []string
	values map[string][]string
}

// EmptyArguments returns an empty set of flags.
func EmptyArguments() *Arguments { return &Arguments{values: map[string][]string{}} }

// Set replaces a flag's values. Without values the flag stands alone.
func (a *Arguments) Set(name string, values ...string) *Arguments {
	if !slices.Contains(a.names, name) {
		a.names = append(a.names, name)
	}
	a.values[name] = slices.Clone(values)
	return a
}

// Append adds values to a flag.
func (a *Arguments) Append(name string, values ...string) *Arguments {
	return a.Set(name, append(slices.Clone(a.values[name]), values...)...)
}

// AppendNoDefaults is Append, because flags have no default values here.
func (a *Arguments) AppendNoDefaults(name string, values ...string) *Arguments {
	return a.Append(name, values...)
}

// Enable sets a flag without a value.
func (a *Arguments) Enable(name string) *Arguments { return a.Set(name) }

// Disable removes a flag.
func (a *Arguments) Disable(name string) *Arguments {
	a.names = slices.DeleteFunc(a.names, func(n string) bool { return n == name })
	delete(a.values, name)
	return a
}

// AsStrings formats the flags for a command line. Flags from defaults that are not set come first.
func (a *Arguments) AsStrings(defaults map[string][]string) []string {
	all := EmptyArguments()
	for name, values := range defaults {
		if !slices.Contains(a.names, name) {
			all.Set(name, values...)
		}
	}
	slices.Sort(all.names)
	for _, name := range a.names {
		all.Set(name, a.values[name]...)
	}
	var out []string
	for _, name := range all.names {
		if len(all.values[name]) == 0 {
			out = append(out, "--"+name)
		}
		for _, value := range all.values[name] {
			out = append(out, "--"+name+"="+value)
		}
	}
	return out
}
