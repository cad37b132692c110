package run

import (
	"cmp"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/servers"
)

// joined is the result of a join: the cluster's CA, and certificates for the node's two roles.
type joined struct {
	cfg *config.Config
	log *slog.Logger
	// server is the URL of the first server of --join. Requests go to a server that works.
	server string
	ca     []byte
	dir    string
	// node is the client certificate of the node agent, kubelet the serving certificate of its API.
	node, kubelet *identity
	servers       *servers.Pool
	reach         *servers.Transport // to the API servers as the node
	parts         *servers.Transport // to the API servers with tokens, for the node's other parts
	trust         *authorities
	tidings       chan struct{} // has room for one word that a certificate is new
	fallback      atomic.Pointer[tls.Certificate]
	account       bool // the node's parts have an account of their own
}

// join makes this machine a member of the cluster. It finds the server's CA by the hash in the
// token, requests a certificate with the token's identity, and stores it. A machine that has joined
// before needs no token.
func join(ctx context.Context, cfg *config.Config, log *slog.Logger) (*joined, error) {
	j := &joined{cfg: cfg, log: log, server: config.JoinURLs(cfg.Join)[0], dir: cfg.Path("pki")}
	j.servers = servers.NewPool(servers.Options{User: cfg.NodeName, Given: servers.Addresses(cfg.Join), Path: cfg.Path(servers.File), Log: log.With("component", "servers")})
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return nil, err
	}
	subject := pkix.Name{CommonName: "system:node:" + cfg.NodeName, Organization: []string{"system:nodes"}}
	j.node = &identity{dir: j.dir, name: "node", what: "client certificate of node " + cfg.NodeName, log: log, template: &x509.CertificateRequest{Subject: subject}}
	j.kubelet = &identity{dir: j.dir, name: "kubelet", what: "serving certificate of node " + cfg.NodeName, log: log, template: &x509.CertificateRequest{
		Subject: subject, DNSNames: []string{cfg.NodeName}, IPAddresses: []net.IP{net.ParseIP(cfg.NodeAddress())},
	}}
	err := j.load(time.Now())
	if err == nil && j.replaced(ctx) {
		err = replacedError{}
	}
	if err != nil {
		if err := j.bootstrap(ctx, err); err != nil {
			return nil, err
		}
	}
	if j.trust, err = newAuthorities(j.dir, j.ca); err != nil {
		return nil, err
	}
	j.tidings = make(chan struct{}, 1)
	j.node.signed, j.kubelet.signed = j.trust.signed, j.trust.signed
	j.reach = servers.NewTransport(j.servers, j.trust.pool, j.node.current.Load)
	j.parts = servers.NewTransport(j.servers, j.trust.pool, nil)
	return j, j.keep()
}

// load reads the results of an earlier join. An error names what is missing or expired.
func (j *joined) load(now time.Time) (err error) {
	ca, err := os.ReadFile(filepath.Join(j.dir, "ca.crt"))
	if err != nil {
		return err
	}
	j.ca = ca
	_ = j.kubelet.load(now) // the node requests it on its own
	return j.node.load(now)
}

// bootstrap joins with the token. missing is the reason why a join is necessary.
func (j *joined) bootstrap(ctx context.Context, missing error) error {
	var expired expiredError
	again := errors.As(missing, &expired) || errors.Is(missing, replacedError{})
	token, err := j.cfg.JoinToken()
	switch {
	case err != nil:
		return err
	case again && token == "":
		return fmt.Errorf("%w, so this node cannot renew it any more: make a new token on a server with `knarr token create` and start this node again with --token-file", missing)
	case token == "":
		return errors.New("--token-file is missing: this machine has not joined as node " + j.cfg.NodeName + " yet; make a token on a server with `knarr token create`")
	}
	id, hash, err := splitToken(token)
	if err != nil {
		return err
	}
	if j.ca, err = firstPinnedCA(ctx, config.JoinURLs(j.cfg.Join), hash); err != nil {
		return err
	}
	if err := j.write("ca.crt", j.ca); err != nil {
		return err
	}
	pinned, err := servers.Roots(j.ca)
	if err != nil {
		return err
	}
	reach := servers.NewTransport(j.servers, func() *x509.CertPool { return pinned }, nil)
	defer reach.CloseIdleConnections()
	c, err := client.Remote(&rest.Config{Host: j.server, BearerToken: id, Transport: reach})
	if err != nil {
		return err
	}
	j.node.sign = signWith(func() (client.Interface, error) { return c, nil }, "node", certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth)
	var key crypto.Signer
	if again {
		key = j.node.key() // the cluster recognizes this machine by this key
	}
	err = j.node.renew(ctx, key)
	switch {
	case apierrors.IsUnauthorized(err):
		return errors.New("the server does not know the token, or it has expired: make a new one on a server with `knarr token create`")
	case apierrors.IsForbidden(err):
		return errors.New("the token is not for nodes; `knarr token create` without --server makes one that is")
	case err != nil:
		return fmt.Errorf("client certificate: %w", err)
	}
	return nil
}

// keep starts the renewal of both certificates by the node.
func (j *joined) keep() error {
	c, err := client.Remote(j.config())
	if err != nil {
		return err
	}
	own := func() (client.Interface, error) { return c, nil }
	j.node.sign = signWith(own, "node", certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth)
	j.node.changed = func() { j.reach.Rotate(); j.news() }
	j.kubelet.changed = j.news
	j.node.storing = func(ctx context.Context, fresh, old *tls.Certificate) error {
		return claim(ctx, c, j.cfg.NodeName, keyHash(fresh), keyHash(old))
	}
	j.kubelet.sign = signWith(own, "kubelet", certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth)
	return nil
}

// run keeps both certificates valid and follows the cluster's servers and CAs until ctx ends. The
// node itself requests the serving certificate. The cluster approves its addresses once they are in
// the Node object. Until then the API has a self-signed certificate, which the server does not
// accept.
func (j *joined) run(ctx context.Context, c, parts client.Interface) error {
	return process.Alongside(ctx, process.Part(j.node.run), process.Part(j.kubelet.run), j.reach.Run,
		process.Part(func(ctx context.Context) { j.followAuthorities(ctx, c) }),
		process.Part(func(ctx context.Context) { j.follow(ctx, parts) }))
}

// follow learns the cluster's servers from its Service until ctx ends. A failure does not stop the
// node, which goes on with the servers that it knows.
func (j *joined) follow(ctx context.Context, c client.Interface) {
	if err := servers.Follow(ctx, c, j.servers, j.log); err != nil {
		j.log.Warn("this node does not learn of further servers", "error", err)
	}
}

// news wakes followAuthorities.
func (j *joined) news() {
	select {
	case j.tidings <- struct{}{}:
	default:
	}
}

// config returns the node agent's configuration for reaching the servers. Errors name the server
// that was given, or the Service of several ones.
func (j *joined) config() *rest.Config {
	host := j.server
	if len(j.servers.Order()) > 1 {
		host = "https://" + servers.Name
	}
	return &rest.Config{Host: host, Transport: j.reach}
}

// renewErrors is the number of failed renewals of the certificate "node" or "kubelet".
func (j *joined) renewErrors(certificate string) int64 {
	if certificate == j.node.name {
		return j.node.failed.Load()
	}
	return j.kubelet.failed.Load()
}

// kubeletTLS serves the node's API to clients that the cluster's CA has signed.
func (j *joined) kubeletTLS() (*tls.Config, error) {
	own, err := selfSigned(j.cfg, j.ca)
	if err != nil {
		return nil, err
	}
	j.fallback.Store(&own.Certificates[0])
	own.Certificates = nil
	own.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return cmp.Or(j.kubelet.current.Load(), j.fallback.Load()), nil
	}
	return own, nil
}

func (j *joined) write(name string, data []byte) error {
	return durable.WriteFile(filepath.Join(j.dir, name), data)
}

// splitToken splits ID.SECRET.CAHASH.
func splitToken(token string) (bearer, hash string, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(parts[0]) != 6 || len(parts[1]) != 16 || len(parts[2]) != 64 {
		return "", "", errors.New("the token is not usable: wanted ID.SECRET.CAHASH as `knarr token create` prints it, of 6, 16 and 64 characters")
	}
	return parts[0] + "." + parts[1], "sha256:" + parts[2], nil
}

// firstPinnedCA is pinnedCA of the first server that answers. The error is of all servers.
func firstPinnedCA(ctx context.Context, urls []string, hash string) ([]byte, error) {
	var failed []error
	for _, server := range urls {
		ca, err := pinnedCA(ctx, server, hash)
		if err == nil {
			return ca, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// firstReachable returns the first server of --join to which a connection can be made, or the first
// one if there is none. A server joins through one other.
func firstReachable(ctx context.Context, join string) string {
	urls := config.JoinURLs(join)
	if len(urls) < 2 {
		return join
	}
	for _, server := range urls {
		dialer := net.Dialer{Timeout: pinnedTimeout / 3}
		if conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(server, "https://")); err == nil {
			_ = conn.Close()
			return server
		}
	}
	return urls[0]
}

// pinnedTimeout is the time limit for a server's certificates.
const pinnedTimeout = 15 * time.Second

// pinnedCA fetches the server's certificates and returns the CA whose key has the hash. Nothing
// secret is sent before.
func pinnedCA(ctx context.Context, server, hash string) ([]byte, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, pinnedTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // the chain is checked below, against the pinned key
	conn, err := dialer.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("join %s: %w%s", server, err, unreachable(err, u))
	}
	defer conn.Close()
	chain := conn.(*tls.Conn).ConnectionState().PeerCertificates
	for _, cert := range chain {
		if !cert.IsCA || pki.CertificateHash(cert) != hash {
			continue
		}
		if cert.CheckSignatureFrom(cert) != nil {
			continue // a new CA's certificate by the old one, during a rotation
		}
		roots, others := x509.NewCertPool(), x509.NewCertPool()
		roots.AddCert(cert)
		for _, other := range chain[1:] {
			others.AddCert(other)
		}
		if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, DNSName: u.Hostname()}); err != nil {
			return nil, fmt.Errorf("join %s: %w", server, err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), nil
	}
	return nil, fmt.Errorf("join %s: the server's CA is not the one that the token was made for; if the cluster's CA was replaced since, make a new token with `knarr token create`", server)
}

// signTimeout is the time limit for signing a request.
const signTimeout = 60 * time.Second

// signWith returns a function that has the cluster sign a request.
func signWith(reach func() (client.Interface, error), name, signer string, usage certificatesv1.KeyUsage) func(context.Context, []byte) ([]byte, error) {
	return func(ctx context.Context, der []byte) ([]byte, error) {
		c, err := reach()
		if err != nil {
			return nil, err
		}
		csr, err := client.Create(ctx, c, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "node-" + name + "-"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer,
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage},
			},
		})
		if err != nil {
			return nil, err
		}
		return signed(ctx, c, csr)
	}
}

// signed waits until the request is signed.
func signed(ctx context.Context, c client.Interface, csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	for name := csr.Name; ; {
		for _, cond := range csr.Status.Conditions {
			if cond.Type == certificatesv1.CertificateDenied || cond.Type == certificatesv1.CertificateFailed && cond.Status == corev1.ConditionTrue {
				return nil, fmt.Errorf("request %s: %s: %s", name, cond.Type, cond.Message)
			}
		}
		if len(csr.Status.Certificate) > 0 {
			return csr.Status.Certificate, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("request %s was not signed within %s (kubectl get csr %s)", name, signTimeout, name)
		case <-time.After(100 * time.Millisecond):
		}
		var err error
		if csr, err = client.Get[*certificatesv1.CertificateSigningRequest](ctx, c, "", name); err != nil {
			return nil, err
		}
	}
}
