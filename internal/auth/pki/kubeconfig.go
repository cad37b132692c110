package pki

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/knarr-project/knarr/internal/durable"
)

type kubeconfig struct {
	path, server string
	leaf         *Leaf
}

// WriteKubeconfig writes a kubeconfig file with the identity of leaf for the server's URL, with all
// data inline. Run rewrites it after each renewal of the certificate.
func (p *PKI) WriteKubeconfig(path, server string, leaf *Leaf) error {
	k := kubeconfig{path: path, server: server, leaf: leaf}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kubeconfigs = append(p.kubeconfigs, k)
	return p.writeKubeconfig(k)
}

func (p *PKI) writeKubeconfig(k kubeconfig) error {
	certPEM, keyPEM, err := k.leaf.PEM()
	if err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", k.path, err)
	}
	data, err := Kubeconfig(k.server, p.CA.Bundle(), k.leaf.spec.CommonName, &clientcmdapi.AuthInfo{ClientCertificateData: certPEM, ClientKeyData: keyPEM})
	if err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", k.path, err)
	}
	if err := os.MkdirAll(filepath.Dir(k.path), 0o755); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", k.path, err)
	}
	if have, err := os.ReadFile(k.path); err == nil && bytes.Equal(have, data) {
		return nil
	}
	return durable.Replace(k.path, data)
}

// Kubeconfig returns the content of a kubeconfig file: one cluster "knarr", one user, one context.
func Kubeconfig(server string, caPEM []byte, user string, credentials *clientcmdapi.AuthInfo) ([]byte, error) {
	const cluster = "knarr"
	context := user + "@" + cluster
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: caPEM}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: credentials},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: context,
	})
}
