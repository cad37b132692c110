package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"
)

// Config describes the wanted certificates.
type Config struct {
	// Dir is the folder of keys and certificates, created with mode 0700.
	Dir string
	// ServiceIPs are the first addresses of the Service ranges, at which pods reach the API server.
	ServiceIPs []net.IP
	// ClusterDomain defaults to "cluster.local".
	ClusterDomain string
	// Names are further DNS names and IP addresses of the API server: the node's name and
	// addresses, --tls-san.
	Names []string
	// NodeName, if set, requests the certificates of the node agent in this process.
	NodeName string
	// NodeAddresses are the node's addresses, for its serving certificate.
	NodeAddresses []string
	// PeerNames, if set, requests the CA of the embedded store's members, and the certificate with
	// which this member serves the others and connects to them. The first one is the member's name,
	// the others are further names and addresses.
	PeerNames []string
	// Clock defaults to the machine's.
	Clock clock.WithTicker
}

// PKI is the content of the folder. Open sets its fields, which do not change afterwards. Run
// renews the Leaves.
type PKI struct {
	CA           *CA
	FrontProxyCA *CA
	// PeerCA signs the certificates of the embedded store's members (etcd/ca.crt); nil without
	// PeerNames.
	PeerCA *CA
	// ServiceAccount signs service account tokens.
	ServiceAccount *TokenKeys
	// Seal encrypts keys that servers pass to each other through the store.
	Seal *Seal

	APIServer *Leaf // the API server's serving certificate
	// The API server as a client of kubelets (kube-apiserver-kubelet-client)
	KubeletClient     *Leaf
	FrontProxyClient  *Leaf // the API server as a client of aggregated API servers
	Admin             *Leaf // kubernetes-admin in system:masters
	Scheduler         *Leaf
	ControllerManager *Leaf
	Proxy             *Leaf
	Node              *Leaf // the node agent as a client (system:node:NAME); nil without NodeName
	Kubelet           *Leaf // the node agent's serving certificate; nil without NodeName

	// The store's member as a server and a client of the others (etcd/peer.crt); nil without
	// PeerNames
	Peer *Leaf

	config      Config
	mu          sync.Mutex // guards leaves and kubeconfigs
	leaves      []*Leaf
	kubeconfigs []kubeconfig
	renewed     chan struct{} // closed after the next renewal; nil without a waiting caller
}

// Open reads the folder and creates what is missing, all in parallel.
func Open(config Config) (*PKI, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.ClusterDomain == "" {
		config.ClusterDomain = "cluster.local"
	}
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	p := &PKI{config: config}
	now := config.Clock.Now()
	var g errgroup.Group
	g.Go(func() (err error) {
		p.CA, err = openCA(config.Dir, "ca", "kubernetes", now)
		return err
	})
	g.Go(func() (err error) {
		p.FrontProxyCA, err = openCA(config.Dir, "front-proxy-ca", "front-proxy-ca", now)
		return err
	})
	if len(config.PeerNames) > 0 {
		if err := os.MkdirAll(p.path("etcd"), 0o700); err != nil {
			return nil, fmt.Errorf("pki: %w", err)
		}
		g.Go(func() (err error) {
			p.PeerCA, err = openCA(config.Dir, "etcd/ca", "etcd-ca", now)
			return err
		})
	}
	g.Go(func() (err error) {
		p.ServiceAccount, err = openTokenKeys(config.Dir)
		return err
	})
	g.Go(func() (err error) {
		p.Seal, err = openSeal(config.Dir)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	p.declare()
	var leaves errgroup.Group
	for _, l := range p.leaves {
		leaves.Go(func() error { return l.open(now) })
	}
	if err := leaves.Wait(); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return p, nil
}

// declare lists the cluster's own certificates.
func (p *PKI) declare() {
	p.APIServer = p.leaf(p.CA, Spec{File: "apiserver", CommonName: "kube-apiserver", Names: p.serverNames(), ServerOnly: true})
	p.KubeletClient = p.leaf(p.CA, Spec{File: "apiserver-kubelet-client", CommonName: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}})
	p.FrontProxyClient = p.leaf(p.FrontProxyCA, Spec{File: "front-proxy-client", CommonName: "front-proxy-client"})
	p.Admin = p.leaf(p.CA, Spec{File: "admin", CommonName: "kubernetes-admin", Groups: []string{"system:masters"}})
	p.Scheduler = p.leaf(p.CA, Spec{File: "scheduler", CommonName: "system:kube-scheduler"})
	p.ControllerManager = p.leaf(p.CA, Spec{File: "controller-manager", CommonName: "system:kube-controller-manager"})
	p.Proxy = p.leaf(p.CA, Spec{File: "kube-proxy", CommonName: "system:kube-proxy"})
	if names := p.config.PeerNames; len(names) > 0 {
		p.Peer = p.leaf(p.PeerCA, Spec{File: "etcd/peer", CommonName: names[0], Names: slices.Compact(slices.Sorted(slices.Values(names)))})
	}
	if name := p.config.NodeName; name != "" {
		p.Node = p.leaf(p.CA, NodeSpec(name))
		p.Kubelet = p.leaf(p.CA, KubeletSpec(name, p.config.NodeAddresses))
	}
}

// NodeSpec returns the Spec of a node agent's client certificate.
func NodeSpec(node string) Spec {
	return Spec{File: "nodes/" + node + "/client", CommonName: "system:node:" + node, Groups: []string{"system:nodes"}}
}

// KubeletSpec returns the Spec of a node agent's serving certificate.
func KubeletSpec(node string, addresses []string) Spec {
	names := append([]string{node}, addresses...)
	return Spec{File: "nodes/" + node + "/kubelet", CommonName: "system:node:" + node, Groups: []string{"system:nodes"}, Names: names, ServerOnly: true}
}

// serverNames returns all names and addresses at which the API server is reached.
func (p *PKI) serverNames() []string {
	names := []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + p.config.ClusterDomain,
		"localhost", "127.0.0.1", "::1",
	}
	for _, ip := range p.config.ServiceIPs {
		names = append(names, ip.String())
	}
	if p.config.NodeName != "" {
		names = append(names, p.config.NodeName)
	}
	names = append(names, p.config.NodeAddresses...)
	names = append(names, p.config.Names...)
	slices.Sort(names)
	return slices.Compact(names)
}

// Authorities returns the cluster's CAs by name.
func (p *PKI) Authorities() map[string]*CA {
	all := map[string]*CA{"kubernetes": p.CA, "front-proxy": p.FrontProxyCA}
	if p.PeerCA != nil {
		all["etcd"] = p.PeerCA
	}
	return all
}

func (p *PKI) path(name string) string { return filepath.Join(p.config.Dir, name) }

func (p *PKI) leaf(ca *CA, spec Spec) *Leaf {
	l := &Leaf{spec: spec, base: p.path(spec.File), ca: ca}
	p.leaves = append(p.leaves, l)
	return l
}

// Issue creates or loads another certificate signed by the cluster's CA; Run renews it too.
func (p *PKI) Issue(spec Spec) (*Leaf, error) {
	l := &Leaf{spec: spec, base: p.path(spec.File), ca: p.CA}
	if err := l.open(p.config.Clock.Now()); err != nil {
		return nil, fmt.Errorf("pki: issue %s: %w", spec.File, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaves = append(p.leaves, l)
	return l, nil
}

// ServerTLS returns the API server's TLS configuration. It requests client certificates without
// verifying them. The authenticator answers an unknown certificate with 401, as upstream, instead
// of a failed handshake.
func (p *PKI) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: p.withCA(p.APIServer),
		ClientAuth:     tls.RequestClientCert,
		ClientCAs:      p.clientCAs(),
		NextProtos:     []string{"h2", "http/1.1"},
		// Use full records from the start. Small ones, meant for a page's first bytes, would cost a
		// system call per event.
		DynamicRecordSizingDisabled: true,
	}
}

// ClientTLS returns the configuration of a client with the identity of leaf, for servers with a
// certificate of the cluster's CA. Its roots are those of this moment.
func (p *PKI) ClientTLS(leaf *Leaf) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: p.CA.Pool(), GetClientCertificate: leaf.GetClientCertificate}
}

// RenewAt returns the time of the next renewal.
func (p *PKI) RenewAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	var next time.Time
	for _, l := range p.leaves {
		if at := l.RenewAt(); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// Renew renews the certificates that are due or that another CA than the present signer has signed,
// and rewrites the kubeconfig files that differ. A failure does not stop the others.
func (p *PKI) Renew() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.config.Clock.Now()
	return p.renew(func(l *Leaf) bool { return !l.usable(l.Certificate().Leaf, now) })
}

// Replace renews the named certificates now, or all without names. A name is that of the file
// without extension, such as apiserver.
func (p *PKI) Replace(names ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.renew(func(l *Leaf) bool { return len(names) == 0 || slices.Contains(names, l.spec.File) })
}

// Known returns an error if a name is not that of a certificate.
func (p *PKI) Known(names ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var known []string
	for _, l := range p.leaves {
		known = append(known, l.spec.File)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("certificate %q is not one of this server's: %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// renew renews the due certificates; mu is held.
func (p *PKI) renew(due func(*Leaf) bool) error {
	now := p.config.Clock.Now()
	var errs []error
	if p.renewed != nil {
		defer func() { close(p.renewed); p.renewed = nil }()
	}
	for _, l := range p.leaves {
		if !due(l) {
			if err := l.rechain(); err != nil {
				errs = append(errs, fmt.Errorf("pki: write %s: %w", l.spec.File, err))
			}
			continue
		}
		if err := l.renew(now); err != nil {
			errs = append(errs, fmt.Errorf("pki: renew %s: %w", l.spec.File, err))
			continue
		}
		slog.Info("certificate renewed", "file", l.CertFile(), "until", l.Certificate().Leaf.NotAfter)
	}
	for _, k := range p.kubeconfigs {
		errs = append(errs, p.writeKubeconfig(k))
	}
	return errors.Join(errs...)
}

// Renewed returns a channel that is closed after the next renewal of certificates.
func (p *PKI) Renewed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.renewed == nil {
		p.renewed = make(chan struct{})
	}
	return p.renewed
}

// Run renews certificates until ctx ends. It checks at least once a day, because clocks of machines
// jump and sleep.
func (p *PKI) Run(ctx context.Context) error {
	for {
		wait := min(max(p.RenewAt().Sub(p.config.Clock.Now()), time.Minute), 24*time.Hour)
		timer := p.config.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		if err := p.Renew(); err != nil {
			slog.Error("cannot renew certificates; trying again in a minute", "error", err)
		}
	}
}

// clientCAs returns the authorities named in the server's certificate request, so that clients
// choose a fitting certificate.
func (p *PKI) clientCAs() *x509.CertPool {
	pool := p.CA.Pool().Clone()
	for _, c := range p.FrontProxyCA.Certificates() {
		pool.AddCert(c)
	}
	return pool
}

// withCA sends the trusted CAs after the leaf, so that a joining machine can compare them with its
// token's hash.
func (p *PKI) withCA(leaf *Leaf) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		own, err := leaf.GetCertificate(hello)
		if err != nil {
			return nil, err
		}
		chain := *own
		chain.Certificate = slices.Clone(own.Certificate)
		for _, c := range p.CA.Certificates() {
			chain.Certificate = append(chain.Certificate, c.Raw)
		}
		return &chain, nil
	}
}
