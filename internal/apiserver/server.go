package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/discovery"
	"github.com/knarr-project/knarr/internal/apiserver/aggregation"
	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/apiserver/deliver"
	"github.com/knarr-project/knarr/internal/apiserver/flow"
	"github.com/knarr-project/knarr/internal/apiserver/h2"
	"github.com/knarr-project/knarr/internal/apiserver/handshake"
	"github.com/knarr-project/knarr/internal/apiserver/usage"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/trace"
)

// Config is what a Server is made of. Zero values are upstream's defaults where there are any.
type Config struct {
	Store store.Store
	// Places are where some kinds lie instead; Run and Close leave them open, too.
	Places []Place
	// Security may be set later by Use, because some of it needs the Server's Client.
	Security Security

	// ServiceCIDRs are where cluster IPs come from: one, or two of different families.
	ServiceCIDRs []netip.Prefix
	// NodePorts is where node ports come from; the zero value is 30000-32767.
	NodePorts PortRange
	// Advertise is the address of this server that the Service "kubernetes" leads to. Not set: no endpoints are kept.
	Advertise netip.AddrPort

	// KubeletAddresses are the kinds of nodes' addresses that kubelets are reached at, in order; nil: addresses before names.
	KubeletAddresses []corev1.NodeAddressType
	// KubeletTLS is used to reach the nodes' HTTPS servers: logs, exec, port-forward, proxy.
	KubeletTLS *tls.Config
	// ProxyCertificate is the front proxy's: extension servers (APIServices) know this server by it.
	ProxyCertificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// Trust is what extension servers are told about who authenticates clients.
	Trust Trust
	// Egress is how nodes, webhooks and extension servers are connected to; nil is directly.
	Egress *egress.Selector
	// Audit records requests; nil records none. The server closes it.
	Audit *audit.Log

	// Tracer records requests; nil records none.
	Tracer *trace.Tracer

	// EventTTL is how long Events are kept; 0 is one hour, negative for ever. Those of LeaseReuse (0 is one minute) go together.
	EventTTL, LeaseReuse time.Duration
	// NoPrivileged refuses pods with privileged containers.
	NoPrivileged bool
	// CompactEvery is how often old revisions are forgotten; 0 is five minutes, negative never.
	CompactEvery time.Duration
	// RequestTimeout bounds requests other than watches and streams; 0 is one minute.
	RequestTimeout time.Duration
	// MaxRequests is how many seats there are for requests at one time (FlowSchemas divide them); 0 is 600, negative does not limit.
	MaxRequests int
	// MinWatch is the shortest time after which a watch without timeoutSeconds ends; 0 is half an hour.
	MinWatch time.Duration
	// Switches are the resources that clients are served; nil: all.
	Switches *api.Switches
	// Front is what is said of requests whoever they are from.
	Front Front
	// ShutdownDelay is how long the server goes on after it has said that it is not ready any more; 0 by default.
	ShutdownDelay time.Duration
	// ShutdownIdle is how long the server, when it stops, waits for connections on which nothing is asked: the client may just be sending, and over HTTP/1.1
	// nothing can tell it not to; 0 is a second.
	ShutdownIdle time.Duration
	// ShutdownRetryAfter: connections are taken until no request is under way any more, and those who come meanwhile are told to come again.
	ShutdownRetryAfter bool
	// ShutdownTimeout is how long requests may take to end when the server stops; 0 is RequestTimeout.
	ShutdownTimeout time.Duration

	// PolicyStored is closed when the roles and bindings that every cluster has are stored, which somebody else does; nil: nobody does.
	PolicyStored <-chan struct{}
	// ShutdownWatches is over how long a time watches end when the server stops; 0 ends all at once.
	ShutdownWatches time.Duration
	// LivezGrace is for how long after its start the server is alive whatever it lacks.
	LivezGrace time.Duration
	// OthersEndpoints leaves the endpoints of the Service kubernetes to somebody else.
	OthersEndpoints bool

	// Components are those that componentstatuses tell of, beside the store.
	Components []Component
	// NoProfiling leaves out the pages of the process's own profiles.
	NoProfiling bool
	// Settings are what the process was started with, which /flagz shows; nil: there is no such page.
	Settings func() map[string]string
	// Collectors are metrics of other parts of the process, which /metrics shows too.
	Collectors []prometheus.Collector

	Logger *slog.Logger
	// Clock tells the time; nil is time.Now.
	Clock func() time.Time
}

// PortRange is Size ports from Base on.
type PortRange struct{ Base, Size int }

// Server serves the API. Make one with New, give it its security with Use, serve with Run.
type Server struct {
	cfg       Config
	places    []*place // of which the first is home
	home      *place
	elsewhere map[string]*place // by the prefix of a kind that is not at home
	endpoints *endpoints
	log       *slog.Logger
	clock     func() time.Time
	made      time.Time
	security  atomic.Pointer[Security]
	handler   http.Handler
	discovery *discovery.Handler
	custom    *customKinds
	// customDocs tells discovery and OpenAPI of custom kinds.
	customDocs *customDocuments
	remotes    *aggregation.Aggregator
	routes     *client.Routes // to Services that convert custom resources
	flow       *flow.Gate
	metrics    *metrics
	meter      *usage.Meter
	pace       *deliver.Pace
	pool       *deliver.Pool
	lanes      *deliver.Lanes
	hubs       hubs
	streams    streams
	ears       *deliver.Ears // while the server runs
	out        transports

	modes auth.Memo[string, impersonation] // by which users have impersonated last

	// ctx ends when the server is closed: caches and other things that live as long as it does.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// started is closed when the objects that every cluster has are there.
	started chan struct{}
	// What follows it, and is kept up later: trust for extension servers, the day since when tokens are noted, and where this server is.
	trusted, tracked, led milestone

	// stopping is set when the server says that it is not ready any more, leaving when it takes no new connections; then
	// endStreams ends what lives as long as its ends want.
	stopping, leaving atomic.Bool
	// underWay counts requests that somebody waits for, but for those that live long; only with ShutdownRetryAfter.
	underWay   atomic.Int64
	streaming  context.Context
	endStreams context.CancelFunc
	handled    handledWatches
}

// Security is who may come in, what they may do, and what answers the API's questions about that.
type Security struct {
	// Authenticator: without one everybody is anonymous.
	Authenticator auth.Authenticator
	// Authorizer: without one nothing is allowed.
	Authorizer auth.Authorizer
	Admission  admission.Chain
	// TokenIssuer answers serviceaccounts/NAME/token.
	TokenIssuer TokenIssuer
	// Tokens and Audiences (the server's own) answer TokenReviews.
	Tokens    auth.TokenAuthenticator
	Audiences []string
	// Rules answers SelfSubjectRulesReviews.
	Rules RulesReviewer
	// Paths are read besides the API: /.well-known/openid-configuration, /openid/v1/jwks.
	Paths map[string]http.Handler
}

// TokenIssuer makes service account tokens.
type TokenIssuer interface {
	Issue(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// RulesReviewer fills in what a user may do in a namespace.
type RulesReviewer interface {
	ReviewRules(user auth.User, review *authorizationv1.SelfSubjectRulesReview) error
}

// New makes a Server. Its Client and Handler work at once; Close it when Run is not called.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil {
		return nil, errors.New("apiserver: no store")
	}
	cel.BoundQuantities()
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.EventTTL == 0 {
		cfg.EventTTL = time.Hour
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = time.Minute
	}
	if cfg.MinWatch == 0 {
		cfg.MinWatch = 30 * time.Minute
	}
	if cfg.ShutdownIdle == 0 {
		cfg.ShutdownIdle = time.Second
	}
	if cfg.ShutdownTimeout == 0 {
		cfg.ShutdownTimeout = cfg.RequestTimeout
	}
	if cfg.CompactEvery == 0 {
		cfg.CompactEvery = 5 * time.Minute
	}
	if cfg.NodePorts == (PortRange{}) {
		cfg.NodePorts = PortRange{Base: 30000, Size: 2768}
	}
	m := newMetrics()
	s := &Server{cfg: cfg, metrics: m, log: cfg.Logger, clock: cfg.Clock, made: cfg.Clock(), started: make(chan struct{}), trusted: newMilestone(), tracked: newMilestone(), led: newMilestone(), pace: deliver.NewPace(), pool: deliver.NewPool(), lanes: deliver.NewLanes()}
	if err := s.openPlaces(); err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}
	s.modes.Size = 1024
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.streaming, s.endStreams = context.WithCancel(s.ctx)
	s.Use(cfg.Security)
	s.custom = &customKinds{server: s, served: map[schema.GroupResource]*customKind{}}
	s.customDocs = &customDocuments{kinds: s.custom}
	s.endpoints = newEndpoints(s)
	s.meter = s.newMeter()
	if cfg.Audit != nil {
		cfg.Audit.Metrics = s.metrics.audit
	}
	s.routes = client.NewRoutes(s.ctx, s.own())
	s.remotes = aggregation.New(aggregation.Config{Client: s.own(), Switches: cfg.Switches, Certificate: cfg.ProxyCertificate, Dial: cfg.Egress.To(egress.Cluster), Logger: cfg.Logger, Clock: cfg.Clock})
	s.metrics.registry.MustRegister(append(cfg.Collectors, s.remotes, kindMetrics{s}, takenMetrics{s})...)
	if sealed, ok := cfg.Store.(sealedStore); ok {
		s.metrics.registry.MustRegister(sealed.Collectors()...)
		sealed.OnRepair(s.relist)
	}
	if cfg.MaxRequests >= 0 {
		s.flow = flow.New(flow.Config{Seats: cfg.MaxRequests, Patience: cfg.RequestTimeout / 4, Logger: cfg.Logger})
		s.metrics.registry.MustRegister(s.flow)
	}
	s.discovery = discovery.New(discovery.Providers{s.customDocs, s.remotes}, cfg.Advertise.String(), cfg.Switches)
	s.handler = s.newHandler()
	return s, nil
}

// Use sets who may come in and what they may do.
func (s *Server) Use(security Security) { s.security.Store(&security) }

// Register shows metrics of others beside the server's own.
func (s *Server) Register(collectors ...prometheus.Collector) {
	s.metrics.registry.MustRegister(collectors...)
}

func (s *Server) admission() admission.Chain { return s.security.Load().Admission }

// Handler serves the API over HTTP.
func (s *Server) Handler() http.Handler { return s.handler }

// Run serves on the listener until ctx ends, then lets requests end and closes the server. A nil tlsConfig serves without TLS.
func (s *Server) Run(ctx context.Context, listener net.Listener, tlsConfig *tls.Config) error {
	defer s.Close()
	if tlsConfig != nil {
		tlsConfig = tlsConfig.Clone()
	}
	var connections openConnections
	server := &http.Server{
		ConnState: connections.changed,
		Handler:   s.handler, TLSConfig: tlsConfig, ReadHeaderTimeout: 32 * time.Second, IdleTimeout: 90 * time.Second,
		MaxHeaderBytes: 1 << 20, ConnContext: deliver.Context, ErrorLog: s.httpErrors(),
	}
	listener = deliver.Listen(listener)
	if err := h2.Configure(server, s.pool, s.cfg.RequestTimeout); err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}
	if err := s.openEars(); err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}
	s.background()
	if tlsConfig != nil {
		listener = s.shakeHands(listener, server)
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("apiserver: serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	s.takeLeave(server, listener, &connections)
	<-failed
	hangUp(listener)
	return nil
}

// shakeHands makes the connections TLS connections before the server sees them.
func (s *Server) shakeHands(listener net.Listener, server *http.Server) net.Listener {
	return handshake.Listen(listener, handshake.Config{
		TLS: server.TLSConfig, Patience: server.ReadHeaderTimeout, Grace: min(5*time.Second, s.cfg.ShutdownTimeout),
		Panicked: func(v any) { s.log.Error("panic in a TLS handshake", "panic", v, "stack", string(debug.Stack())) },
	})
}

// hangUp closes connections of a closed listener that the server did not come to take.
func hangUp(listener net.Listener) {
	for c, err := listener.Accept(); err == nil; c, err = listener.Accept() {
		_ = c.Close()
	}
}

// openEars lets streams hear their clients hang up.
func (s *Server) openEars() (err error) {
	if s.ears, err = deliver.NewEars(); err != nil {
		return err
	}
	s.goOn(func(context.Context) {
		if err := s.ears.Run(); err != nil {
			s.log.Error("watches do not hear their clients hang up", "err", err)
		}
	})
	return nil
}

// httpErrors counts what the HTTP library has to say of connections, and logs it where details are wanted.
func (s *Server) httpErrors() *log.Logger {
	return log.New(connectionErrors{s.metrics.tlsErrors, slog.NewLogLogger(s.log.Handler(), slog.LevelDebug).Writer()}, "", 0)
}

type connectionErrors struct {
	handshakes prometheus.Counter
	to         io.Writer
}

// Write implements io.Writer.
func (c connectionErrors) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("TLS handshake error from")) {
		c.handshakes.Inc()
	}
	return c.to.Write(line)
}

// background starts what the server does by itself. The server is ready when the first objects are there.
func (s *Server) background() {
	for _, at := range s.places {
		s.goOn(func(ctx context.Context) { s.compact(ctx, at) })
	}
	s.goOn(s.custom.run)
	s.goOn(func(context.Context) { typeConverter() }) // parsed aside, so that the first write need not wait for it
	s.goOn(func(ctx context.Context) {
		for !s.start(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
		}
		close(s.started)
		s.goOn(s.aggregate)
		if s.flow != nil {
			s.goOn(s.followFlowControl)
			s.goOn(s.flow.Run)
		}
		s.keepKubernetesService(ctx)
	})
}

// start makes what every cluster has from the beginning.
func (s *Server) start(ctx context.Context) bool {
	if err := s.bootstrap(ctx, append(s.bootstrapObjects(), localServices(s.cfg.Switches)...)); err != nil {
		if ctx.Err() == nil {
			s.log.Error("the first objects could not be made; trying again", "err", err)
		}
		return false
	}
	return true
}

// Started returns when what every cluster has from the beginning is stored.
func (s *Server) Started(ctx context.Context) error {
	select {
	case <-s.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return errors.New("the API server was closed before the first objects were made")
	}
}

// goOn runs fn until the server closes.
func (s *Server) goOn(fn func(ctx context.Context)) {
	s.wg.Go(func() { fn(s.ctx) })
}

// Close ends everything that the server has started. It does not close the store.
func (s *Server) Close() {
	s.cancel()
	s.streams.close()
	if s.ears != nil {
		_ = s.ears.Close()
	}
	s.wg.Wait()
	for _, at := range s.places {
		at.cache.Close()
	}
	s.cfg.Audit.Close()
}
