// Package hooks prepares webhooks that a test serves on this machine: an address, a certificate,
// and configurations that point to them.
package hooks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/knarr-project/knarr/knarrtest/internal/crd"
)

// Server is the address and certificate of a test's webhook server.
type Server struct {
	Host    string
	Port    int
	CertDir string // tls.crt and tls.key
	CA      []byte // PEM
}

// New makes a certificate for the host in the folder. If port is 0, it selects a free port.
func New(host string, port int, folder string) (*Server, error) {
	if port == 0 {
		free, err := FreePort(host)
		if err != nil {
			return nil, err
		}
		port = free
	}
	certPEM, keyPEM, err := selfSigned(host)
	if err != nil {
		return nil, fmt.Errorf("certificate of webhooks: %w", err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(folder, "tls.crt"), certPEM, 0o600),
		os.WriteFile(filepath.Join(folder, "tls.key"), keyPEM, 0o600))
	return &Server{Host: host, Port: port, CertDir: folder, CA: certPEM}, err
}

// selfSigned makes a certificate, which is its own CA, for a host and for loopback.
func selfSigned(host string) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: host}, NotBefore: now.Add(-time.Minute), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	} else {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), keyPEM, nil
}

// FreePort returns a port on which nothing listens at the moment.
func FreePort(host string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, fmt.Errorf("a port for webhooks: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// URL returns the URL of a path of the server.
func (s *Server) URL(path string) string {
	return "https://" + net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) + "/" + strings.TrimPrefix(path, "/")
}

// Configurations are webhook configurations.
type Configurations struct {
	Mutating   []*admissionregistrationv1.MutatingWebhookConfiguration
	Validating []*admissionregistrationv1.ValidatingWebhookConfiguration
}

// Read adds the webhook configurations of files and folders. A missing path is an error if strict
// is set.
func (c *Configurations) Read(paths []string, strict bool) error {
	for _, path := range paths {
		documents, err := crd.Documents(path)
		if errors.Is(err, os.ErrNotExist) && !strict {
			continue
		}
		if err != nil {
			return err
		}
		for _, document := range documents {
			if err := c.add(document); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return nil
}

func (c *Configurations) add(document []byte) error {
	var kind metav1.TypeMeta
	if json.Unmarshal(document, &kind) != nil || kind.APIVersion != admissionregistrationv1.SchemeGroupVersion.String() {
		return nil // of another API
	}
	switch kind.Kind {
	case "MutatingWebhookConfiguration":
		hook := &admissionregistrationv1.MutatingWebhookConfiguration{}
		c.Mutating = append(c.Mutating, hook)
		return json.Unmarshal(document, hook)
	case "ValidatingWebhookConfiguration":
		hook := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		c.Validating = append(c.Validating, hook)
		return json.Unmarshal(document, hook)
	}
	return nil
}

// Lead points the configurations to the server. A Service's path becomes the path of the server's
// URL.
func (s *Server) Lead(c *Configurations) {
	for _, configuration := range c.Mutating {
		for i := range configuration.Webhooks {
			s.lead(&configuration.Webhooks[i].ClientConfig)
		}
	}
	for _, configuration := range c.Validating {
		for i := range configuration.Webhooks {
			s.lead(&configuration.Webhooks[i].ClientConfig)
		}
	}
}

func (s *Server) lead(c *admissionregistrationv1.WebhookClientConfig) {
	if c.Service != nil {
		path := ""
		if c.Service.Path != nil {
			path = *c.Service.Path
		}
		url := s.URL(path)
		c.URL, c.Service = &url, nil
	}
	c.CABundle = s.CA
}

// Create creates the configurations, and replaces those of the same name.
func (c *Configurations) Create(ctx context.Context, config *rest.Config) error {
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	api := k.AdmissionregistrationV1()
	for _, hook := range c.Mutating {
		_, err := api.MutatingWebhookConfigurations().Create(ctx, hook, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			var have *admissionregistrationv1.MutatingWebhookConfiguration
			if have, err = api.MutatingWebhookConfigurations().Get(ctx, hook.Name, metav1.GetOptions{}); err == nil {
				hook.ResourceVersion = have.ResourceVersion
				_, err = api.MutatingWebhookConfigurations().Update(ctx, hook, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			return fmt.Errorf("create MutatingWebhookConfiguration %s: %w", hook.Name, err)
		}
	}
	for _, hook := range c.Validating {
		_, err := api.ValidatingWebhookConfigurations().Create(ctx, hook, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			var have *admissionregistrationv1.ValidatingWebhookConfiguration
			if have, err = api.ValidatingWebhookConfigurations().Get(ctx, hook.Name, metav1.GetOptions{}); err == nil {
				hook.ResourceVersion = have.ResourceVersion
				_, err = api.ValidatingWebhookConfigurations().Update(ctx, hook, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			return fmt.Errorf("create ValidatingWebhookConfiguration %s: %w", hook.Name, err)
		}
	}
	return nil
}

// TLS returns the configuration for the test's webhook server.
func (s *Server) TLS() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.CertDir, "tls.crt"), filepath.Join(s.CertDir, "tls.key"))
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// pollEvery is the interval of checks in Seen.
const pollEvery = 10 * time.Millisecond

// Seen waits until the API shows the configurations.
func (c *Configurations) Seen(ctx context.Context, config *rest.Config) error {
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	api := k.AdmissionregistrationV1()
	wait := func(get func() error) error {
		for {
			err := get()
			if err == nil {
				return nil
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(pollEvery):
			}
		}
	}
	for _, hook := range c.Mutating {
		if err := wait(func() error {
			_, err := api.MutatingWebhookConfigurations().Get(ctx, hook.Name, metav1.GetOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	for _, hook := range c.Validating {
		if err := wait(func() error {
			_, err := api.ValidatingWebhookConfigurations().Get(ctx, hook.Name, metav1.GetOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
