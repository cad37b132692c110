package dns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/spans"
	"github.com/knarr-project/knarr/internal/network"
)

// Config configures the DNS server of one node.
type Config struct {
	NodeName string
	Client   client.Interface
	// Domain is the cluster domain; default cluster.local.
	Domain string
	// ClusterIP is the address of the Service kube-dns; default is the API server's choice.
	ClusterIP netip.Addr
	// ClusterCIDRs and ServiceCIDRs are the ranges whose reverse names are only answered here,
	// never forwarded.
	ClusterCIDRs, ServiceCIDRs []netip.Prefix
	// ListenAddress is this node's listen address; default is the gateway of the node's pod range.
	ListenAddress netip.Addr
	// Port is tried first. FallbackPort is used if another process has Port on all addresses.
	// Defaults 53 and 10053.
	Port, FallbackPort uint16
	// MetricsPort is on the same address; default 9153.
	MetricsPort uint16
	// Spans keeps when names of Services are answered, for traces. Optional.
	Spans *spans.Ring
	// ResolvConf names the host's resolvers; default /etc/resolv.conf.
	ResolvConf string
}

// Server is the DNS of one node. Make it with New.
type Server struct {
	cfg     Config
	metrics *metrics

	nodes    client.ViewOf[*corev1.Node]
	services client.ViewOf[*corev1.Service]
	slices   client.ViewOf[*discoveryv1.EndpointSlice]

	ready     chan struct{}
	readyOnce sync.Once
}

// Ready is closed when this node's DNS listens for the first time.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// New checks the configuration. It changes nothing on the machine; Run does.
func New(cfg Config) (*Server, error) {
	if cfg.NodeName == "" {
		return nil, errors.New("dns: the node's name is missing")
	}
	if cfg.Domain == "" {
		cfg.Domain = "cluster.local"
	}
	if _, ok := mdns.IsDomainName(cfg.Domain); !ok {
		return nil, fmt.Errorf("dns: cluster domain %q is not a domain name", cfg.Domain)
	}
	if cfg.Port == 0 {
		cfg.Port = 53
	}
	if cfg.FallbackPort == 0 {
		cfg.FallbackPort = 10053
	}
	if cfg.MetricsPort == 0 {
		cfg.MetricsPort = 9153
	}
	if cfg.ResolvConf == "" {
		cfg.ResolvConf = "/etc/resolv.conf"
	}
	return &Server{cfg: cfg, metrics: newMetrics(), ready: make(chan struct{})}, nil
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	if s.nodes, err = client.Open[*corev1.Node](ctx, s.cfg.Client, client.Scope{}); err != nil {
		return fmt.Errorf("dns: nodes: %w", err)
	}
	if s.services, err = client.Open[*corev1.Service](ctx, s.cfg.Client, client.Scope{}); err != nil {
		return fmt.Errorf("dns: services: %w", err)
	}
	if s.slices, err = client.Open[*discoveryv1.EndpointSlice](ctx, s.cfg.Client, client.Scope{}); err != nil {
		return fmt.Errorf("dns: endpointslices: %w", err)
	}
	namespaces, err := client.Open[*corev1.Namespace](ctx, s.cfg.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("dns: namespaces: %w", err)
	}
	noted := s.noteNames(ctx)
	defer func() { cancel(); noted() }()
	fw := newForwarder(s.cfg.ResolvConf)
	defer fw.wait()
	h := &handler{
		zone: newZone(s.cfg.Domain, s.services, s.slices, namespaces), forwarder: fw, metrics: s.metrics,
		clusterRanges: append(append([]netip.Prefix{}, s.cfg.ClusterCIDRs...), s.cfg.ServiceCIDRs...),
	}
	if s.cfg.ClusterIP.IsValid() {
		fw.addOwn(s.cfg.ClusterIP)
	}
	for {
		addr, ok := s.waitForAddress(ctx)
		if !ok {
			return nil
		}
		if err := s.serveAt(ctx, addr, h); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// waitForAddress waits until the node has a pod range and returns the address to listen on.
func (s *Server) waitForAddress(ctx context.Context) (netip.Addr, bool) {
	if addr := s.address(); addr.IsValid() {
		return addr, true
	}
	sub, cancel := context.WithCancel(ctx)
	found := make(chan struct{})
	var once sync.Once
	_, done := s.nodes.Subscribe(sub, func(client.TypedEvent[*corev1.Node]) {
		if s.address().IsValid() {
			once.Do(func() { close(found) })
		}
	})
	defer func() { cancel(); <-done }()
	select {
	case <-ctx.Done():
		return netip.Addr{}, false
	case <-found:
		return s.address(), true
	}
}

func (s *Server) address() netip.Addr {
	if s.cfg.ListenAddress.IsValid() {
		return s.cfg.ListenAddress
	}
	node, ok := s.nodes.Get("", s.cfg.NodeName)
	if !ok {
		return netip.Addr{}
	}
	return network.GatewayOf(node)
}

// serveAt serves on the address until ctx ends. If the node's address changes, it returns nil.
func (s *Server) serveAt(ctx context.Context, addr netip.Addr, h *handler) error {
	h.forwarder.addOwn(addr)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := listen(ctx, addr, s.cfg.Port)
	if err != nil {
		slog.Warn("DNS port is taken; serving on another one behind the Service", "port", s.cfg.Port, "fallback", s.cfg.FallbackPort, "error", err)
		if l, err = listen(ctx, addr, s.cfg.FallbackPort); err != nil {
			return fmt.Errorf("dns: %w", err)
		}
	}
	s.readyOnce.Do(func() { close(s.ready) })
	slog.Info("DNS is ready", "address", l.udp.LocalAddr(), "domain", h.zone.origin)
	var wg sync.WaitGroup
	failed := make(chan error, 3)
	serve := func(what string, run func() error, stop func()) {
		wg.Go(func() {
			if err := run(); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("dns: %s: %w", what, err)
			}
		})
		context.AfterFunc(ctx, stop)
	}
	// Over UDP, ReadTimeout only limits how long the server waits for a query. The default of 2 s
	// would wake an idle process for nothing.
	udp := &mdns.Server{PacketConn: l.udp, Handler: h, ReadTimeout: time.Hour}
	tcp := &mdns.Server{Listener: l.tcp, Handler: h}
	serve("UDP", udp.ActivateAndServe, func() { shutdown(udp, l.udp) })
	serve("TCP", tcp.ActivateAndServe, func() { shutdown(tcp, l.tcp) })
	if ml, err := listenTCP(ctx, addr, s.cfg.MetricsPort); err != nil {
		slog.Warn("DNS metrics are not served", "error", err)
	} else {
		web := &http.Server{Handler: promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}), ReadHeaderTimeout: 10 * time.Second}
		serve("metrics", func() error {
			if err := web.Serve(ml); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		}, func() { _ = web.Close() })
	}
	wg.Go(func() { s.register(ctx, endpointAt{addr, l.port, s.cfg.MetricsPort}) })
	moved := make(chan struct{}, 1)
	_, watched := s.nodes.Subscribe(ctx, func(client.TypedEvent[*corev1.Node]) {
		if now := s.address(); now.IsValid() && now != addr {
			select {
			case moved <- struct{}{}:
			default:
			}
		}
	})
	defer func() { cancel(); <-watched; wg.Wait() }()
	select {
	case <-ctx.Done():
		return nil
	case <-moved:
		return nil
	case err := <-failed:
		return err
	}
}

// shutdown gives running queries a moment to be answered.
func shutdown(s *mdns.Server, socket io.Closer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.ShutdownContext(ctx); err != nil {
		_ = socket.Close()
	}
}

// listeners are UDP and TCP sockets on the same port.
type listeners struct {
	udp  net.PacketConn
	tcp  net.Listener
	port uint16
}

// freebind allows listening on an address that does not exist yet, because the pod network makes
// its link at the same time.
var freebind = net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
	var failed error
	if err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) }); err != nil {
		return err
	}
	return failed
}}

func listen(ctx context.Context, addr netip.Addr, port uint16) (listeners, error) {
	at := net.JoinHostPort(addr.String(), strconv.Itoa(int(port)))
	udp, err := freebind.ListenPacket(ctx, "udp", at)
	if err != nil {
		return listeners{}, err
	}
	tcp, err := freebind.Listen(ctx, "tcp", at)
	if err != nil {
		udp.Close()
		return listeners{}, err
	}
	return listeners{udp, tcp, port}, nil
}

func listenTCP(ctx context.Context, addr netip.Addr, port uint16) (net.Listener, error) {
	return freebind.Listen(ctx, "tcp", net.JoinHostPort(addr.String(), strconv.Itoa(int(port))))
}
