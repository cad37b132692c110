package run

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/durable"
)

// joined is what a machine holds after it has joined: the cluster's CA, and certificates for the node's two roles.
type joined struct {
	server  string
	ca      []byte
	dir     string
	serving atomic.Pointer[tls.Certificate]
}

// join makes this machine a member: it finds the server's CA by the hash in the token, asks for certificates with the
// token's identity, and keeps them. A machine that has joined before needs no token.
func join(ctx context.Context, cfg *config.Config) (*joined, error) {
	j := &joined{server: strings.TrimSuffix(cfg.Join, "/"), dir: cfg.Path("pki")}
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return nil, err
	}
	if j.load() == nil {
		return j, nil
	}
	id, hash, err := splitToken(cfg.Token)
	if err != nil {
		return nil, err
	}
	if j.ca, err = pinnedCA(ctx, j.server, hash); err != nil {
		return nil, err
	}
	c, err := client.Remote(&rest.Config{Host: j.server, BearerToken: id, TLSClientConfig: rest.TLSClientConfig{CAData: j.ca}})
	if err != nil {
		return nil, err
	}
	node := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + cfg.NodeName, Organization: []string{"system:nodes"}}}
	if err := j.request(ctx, c, "node", certificatesv1.KubeAPIServerClientKubeletSignerName, node, certificatesv1.UsageClientAuth); err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	if err := j.write("ca.crt", j.ca); err != nil {
		return nil, err
	}
	return j, j.load()
}

// serve asks for the certificate that the node's API is served with, as the node: its addresses are approved once they stand
// in the Node object. Until then the API is served with a certificate of its own making, which the server does not take.
func (j *joined) serve(ctx context.Context, cfg *config.Config) error {
	if pair, err := j.pair("kubelet"); err == nil {
		j.serving.Store(&pair)
		return nil
	}
	c, err := client.Remote(j.config())
	if err != nil {
		return err
	}
	template := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + cfg.NodeName, Organization: []string{"system:nodes"}},
		DNSNames: []string{cfg.NodeName}, IPAddresses: []net.IP{net.ParseIP(cfg.AdvertiseAddress)},
	}
	if err := j.request(ctx, c, "kubelet", certificatesv1.KubeletServingSignerName, template, certificatesv1.UsageServerAuth); err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	pair, err := j.pair("kubelet")
	if err != nil {
		return err
	}
	j.serving.Store(&pair)
	return nil
}

// config is how the node's agent reaches the server.
func (j *joined) config() *rest.Config {
	return &rest.Config{Host: j.server, TLSClientConfig: rest.TLSClientConfig{
		CAData: j.ca, CertFile: filepath.Join(j.dir, "node.crt"), KeyFile: filepath.Join(j.dir, "node.key"),
	}}
}

// kubeletTLS serves the node's API, for clients that the cluster's CA has signed.
func (j *joined) kubeletTLS(cfg *config.Config) (*tls.Config, error) {
	own, err := selfSigned(cfg, j.config())
	if err != nil {
		return nil, err
	}
	j.serving.Store(&own.Certificates[0])
	own.Certificates = nil
	own.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return j.serving.Load(), nil }
	return own, nil
}

// load reads what an earlier join has left; an error means that there is none, or that it has expired.
func (j *joined) load() (err error) {
	if j.ca, err = os.ReadFile(filepath.Join(j.dir, "ca.crt")); err != nil {
		return err
	}
	_, err = j.pair("node")
	return err
}

func (j *joined) pair(name string) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(j.dir, name+".crt"), filepath.Join(j.dir, name+".key"))
	if err != nil {
		return pair, err
	}
	if time.Now().After(pair.Leaf.NotAfter) {
		return pair, fmt.Errorf("the certificate %s.crt expired at %s", name, pair.Leaf.NotAfter)
	}
	return pair, nil
}

func (j *joined) write(name string, data []byte) error {
	return durable.WriteFile(filepath.Join(j.dir, name), data)
}

// splitToken takes ID.SECRET.CAHASH apart.
func splitToken(token string) (bearer, hash string, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(parts[0]) != 6 || len(parts[1]) != 16 || len(parts[2]) != 64 {
		return "", "", errors.New("token: wanted ID.SECRET.CAHASH as `knarr token create` prints it, of 6, 16 and 64 characters")
	}
	return parts[0] + "." + parts[1], "sha256:" + parts[2], nil
}

// pinnedCA asks the server for its certificates and gives the CA whose key has the hash. Nothing secret is sent before.
func pinnedCA(ctx context.Context, server, hash string) ([]byte, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	address := u.Host
	if u.Port() == "" {
		address += ":6443"
	}
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // the chain is checked below, against the pinned key
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("join %s: %w", server, err)
	}
	defer conn.Close()
	chain := conn.(*tls.Conn).ConnectionState().PeerCertificates
	for _, cert := range chain {
		if !cert.IsCA || pki.CertificateHash(cert) != hash {
			continue
		}
		roots := x509.NewCertPool()
		roots.AddCert(cert)
		if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: u.Hostname()}); err != nil {
			return nil, fmt.Errorf("join %s: %w", server, err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), nil
	}
	return nil, fmt.Errorf("join %s: the server's CA is not the one that the token was made for", server)
}

// request asks the cluster to sign a certificate, waits for it and keeps it with its key.
func (j *joined) request(ctx context.Context, c client.Interface, name, signer string, template *x509.CertificateRequest, usage certificatesv1.KeyUsage) error {
	const patience = 60 * time.Second
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	csr, err := client.Create(ctx, c, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-" + name + "-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage},
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		for _, cond := range csr.Status.Conditions {
			if cond.Type == certificatesv1.CertificateDenied || cond.Type == certificatesv1.CertificateFailed && cond.Status == corev1.ConditionTrue {
				return fmt.Errorf("request %s: %s: %s", csr.Name, cond.Type, cond.Message)
			}
		}
		if len(csr.Status.Certificate) > 0 {
			return errors.Join(j.write(name+".key", keyPEM), j.write(name+".crt", csr.Status.Certificate))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("request %s was not signed within %s (kubectl get csr %s)", csr.Name, patience, csr.Name)
		case <-time.After(100 * time.Millisecond):
		}
		if csr, err = client.Get[*certificatesv1.CertificateSigningRequest](ctx, c, "", csr.Name); err != nil {
			return err
		}
	}
}
