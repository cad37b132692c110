package run

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/auth/delegated"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/observe"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/reload"
	"github.com/knarr-project/knarr/internal/zpages"
)

// component is a component that runs alone. Its name is upstream's, and also that of its lease.
type component struct {
	name       string
	leading    *controller.Leading
	collectors []prometheus.Collector
	parts      []string // parts that /healthz lists in addition to the lease
	// configz is the component's part of /configz, under configzName.
	configz     map[string]any
	configzName string
}

// observe opens the component's address for health and metrics.
func (c *component) observe(ctx context.Context, p Params, to client.Interface) (func(context.Context) error, error) {
	o := &p.Config.Observe
	log := p.Log.With("component", c.name)
	secure, files, err := observedTLS(ctx, p.Config, log)
	if err != nil {
		return nil, err
	}
	asked := &delegated.Auth{Client: to, Certificates: &observe.Authority{Client: to, Now: time.Now}, Now: time.Now, TTL: delegated.Component}
	leads := zpages.Check{Name: "leaderElection", Run: c.leading.Healthy}
	ping := zpages.Check{Name: "ping", Run: func(context.Context) error { return nil }}
	health := []zpages.Check{leads}
	for _, part := range c.parts { // a part that ends, ends the process
		health = append(health, zpages.Check{Name: part, Run: ping.Run})
	}
	configz := map[string]any{
		"clientConnection": map[string]any{"kubeconfig": p.Config.Kubeconfig},
		"leaderElection": map[string]any{
			"leaderElect": true, "resourceLock": "leases", "resourceName": c.name, "resourceNamespace": "kube-system",
			"leaseDuration": controller.LeaseDuration.String(), "renewDeadline": controller.RenewDeadline.String(), "retryPeriod": controller.RetryPeriod.String(),
		},
	}
	for key, value := range c.configz {
		configz[key] = value
	}
	serve, err := observe.Listen(ctx, net.JoinHostPort(o.BindAddress, strconv.Itoa(o.SecurePort)), observe.Config{
		Component: c.name, TLS: secure, Authenticator: asked, Authorizer: asked,
		Health: health, Alive: []zpages.Check{ping}, Ready: []zpages.Check{leads},
		Collectors: slices.Concat(c.collectors, clientMetrics(), []prometheus.Collector{c.leading}),
		Configz:    map[string]any{c.configzName: configz}, Settings: p.Settings, Log: log,
	})
	if err != nil {
		return nil, err
	}
	parts := []func(context.Context) error{serve}
	for _, f := range files {
		parts = append(parts, process.Part(f.Run))
	}
	return func(ctx context.Context) error { return process.Alongside(ctx, parts...) }, nil
}

var errNoOwnCertificate = errors.New("there is no certificate of the component's own beside that of --tls-cert-file")

// observedTLS returns the configured certificates, whose files the caller must follow, or a
// self-signed one, as upstream's components do. Clients may present a certificate. If a certificate
// for all names is configured, the self-signed one is not used.
func observedTLS(ctx context.Context, cfg *config.Config, log *slog.Logger) (*tls.Config, []*reload.File, error) {
	secure := &tls.Config{ClientAuth: tls.RequestClientCert, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errNoOwnCertificate }}
	if cfg.Observe.TLSCert == "" {
		pair, err := selfSignedPair(cfg)
		if err != nil {
			return nil, nil, err
		}
		secure.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	files, err := controlplane.ServingTLS(ctx, secure, &cfg.Observe.Serving, log)
	return secure, files, err
}

// selfSignedPair makes a certificate for the machine's name and address.
func selfSignedPair(cfg *config.Config) (tls.Certificate, error) {
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(cfg.NodeName, []net.IP{net.ParseIP(cfg.NodeAddress())}, nil)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}
