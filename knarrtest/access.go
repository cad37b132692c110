package knarrtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/knarr-project/knarr/internal/auth/pki"
)

const (
	// startTimeout is the time limit of each further step of the start, once the API server
	// answers.
	startTimeout = time.Minute
	pollEvery    = 2 * time.Millisecond
	// certificateLife is the lifetime of a user's certificate.
	certificateLife = 30 * 24 * time.Hour
)

// connect reads the admin's configuration.
func (c *Cluster) connect() error {
	admin, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigPath())
	if err != nil {
		return err
	}
	admin.QPS = -1 // the client's own limit of five requests a second makes tests slow
	c.admin = admin
	return nil
}

// Config returns a copy of the admin's configuration: a user of system:masters, who may do
// everything. The client's own rate limit is off.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// KubeconfigPath returns the path of the admin's kubeconfig, for programs such as kubectl.
func (c *Cluster) KubeconfigPath() string { return filepath.Join(c.dir, "kubeconfig") }

// Kubeconfig returns the content of that file.
func (c *Cluster) Kubeconfig() ([]byte, error) { return os.ReadFile(c.KubeconfigPath()) }

// As returns the configuration of a user, who authenticates with a client certificate of the
// cluster's CA. RBAC decides what this user and these groups may do; the server adds
// system:authenticated. For a service account (system:serviceaccount:NAMESPACE:NAME) As adds the
// groups of service accounts, as its tokens have them.
func (c *Cluster) As(user string, groups ...string) *rest.Config {
	config, err := c.as(user, groups)
	if err != nil { // the machine provides no random numbers
		panic(fmt.Sprintf("knarrtest: certificate of user %s: %v", user, err))
	}
	return config
}

// KubeconfigAs returns a kubeconfig of the user, for programs.
func (c *Cluster) KubeconfigAs(user string, groups ...string) ([]byte, error) {
	config, err := c.as(user, groups)
	if err != nil {
		return nil, err
	}
	return pki.Kubeconfig(config.Host, config.CAData, user, &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData})
}

func (c *Cluster) as(user string, groups []string) (*rest.Config, error) {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		groups = append([]string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}, groups...)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	certPEM, err := c.server.Keys().CA.Signer().Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: user, Organization: groups}, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key.Public())
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(c.admin)
	config.QPS = c.admin.QPS
	config.CertData, config.KeyData = certPEM, keyPEM
	return config, nil
}
