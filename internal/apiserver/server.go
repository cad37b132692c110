package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/discovery"
	"github.com/knarr-project/knarr/internal/api/openapi"
	"github.com/knarr-project/knarr/internal/apiserver/aggregation"
	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/apiserver/definitions"
	"github.com/knarr-project/knarr/internal/apiserver/flow"
	"github.com/knarr-project/knarr/internal/apiserver/local"
	"github.com/knarr-project/knarr/internal/apiserver/node"
	"github.com/knarr-project/knarr/internal/apiserver/past"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/rest"
	"github.com/knarr-project/knarr/internal/apiserver/service"
	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/transport"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/watch"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/history"
	"github.com/knarr-project/knarr/internal/insight/otlp"
	"github.com/knarr-project/knarr/internal/memo"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/zpages"
)

// Config configures a Server. A zero value means upstream's default if upstream has one.
type Config struct {
	Store store.Store
	// Places hold some kinds in other stores. Run and Close do not close any store.
	Places []registry.Override
	// Security can be set later with Use, because some of it needs the Server's Client.
	Security Security

	// ServiceCIDRs are the ranges of cluster IPs: one, or two of different families.
	ServiceCIDRs []netip.Prefix
	// NodePorts is the range of node ports; the zero value is 30000-32767.
	NodePorts service.PortRange
	// Advertise is this server's address in the endpoints of the Service "kubernetes". If it is not
	// set, no endpoints are kept.
	Advertise netip.AddrPort
	// Identity is the name of this server's host. If it is not set, the server has no identity
	// Lease.
	Identity string
	// Alone reports that no other server uses the store now. nil means that none ever does.
	Alone func() bool

	// KubeletAddresses are the types of node addresses to reach kubelets at, in order of
	// preference; nil prefers addresses to names.
	KubeletAddresses []corev1.NodeAddressType
	// KubeletTLS is used for HTTPS to the nodes: logs, exec, port-forward, proxy.
	KubeletTLS *tls.Config
	// KubeletRoots returns the authorities of kubelets if they change; nil means those of
	// KubeletTLS. A change returns another pool.
	KubeletRoots func() *x509.CertPool
	// ProxyCertificate is the front proxy's client certificate, by which extension servers
	// (APIServices) recognize this server.
	ProxyCertificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// Trust is the authentication configuration that is published to extension servers.
	Trust Trust
	// Egress dials nodes, webhooks and extension servers; nil dials directly.
	Egress *egress.Selector
	// Audit records requests; nil records none. The server closes it.
	Audit *audit.Log
	// Causes is the causal log; nil records nothing and answers no questions. The server closes it.
	Causes *causes.Log
	// Changes exports the writes of the causal log as OpenTelemetry traces; nil exports none. The
	// server starts and closes it.
	Changes *otlp.Exporter
	// Peers returns the other servers of the cluster, whose causal logs have their writes; nil has
	// none. PeerHTTP returns a client for one question: the others take the user from the headers
	// X-Remote-User and so on of its requests.
	Peers    func(context.Context) ([]Peer, error)
	PeerHTTP func() *http.Client
	// Answerers answer questions about objects below /insight/v1/, by name. They read as their
	// caller, with a limit of bytes; a question takes no seat of flow control, its reads do.
	Answerers map[string]Answerer
	// History is the history of objects, which New starts; nil records nothing and answers no
	// questions. The server closes it.
	History *history.Log

	// Tracer records spans of requests; nil records none.
	Tracer *trace.Tracer

	// EventTTL is how long Events are kept: 0 is one hour, negative keeps them for ever. Events
	// that are created within LeaseReuse of each other share a lease and expire together; 0 is one
	// minute.
	EventTTL, LeaseReuse time.Duration
	// NoPrivileged refuses pods with privileged containers.
	NoPrivileged bool
	// CompactEvery is the interval of compaction; 0 is five minutes, negative never compacts.
	CompactEvery time.Duration
	// RequestTimeout limits all requests but watches and streams; 0 is one minute.
	RequestTimeout time.Duration
	// MaxRequests is the number of seats for concurrent requests, which FlowSchemas divide; 0 is
	// 600, negative does not limit.
	MaxRequests int
	// MinWatch is the shortest duration of a watch without timeoutSeconds; 0 is half an hour.
	MinWatch time.Duration
	// Transport is how HTTP is served; "" is transport.Fast.
	Transport transport.Kind
	// Switches select the resources that clients are served; nil serves the usual ones.
	Switches *api.Switches
	// Gates are the feature gates that are on besides the defaults.
	Gates []string
	// Front holds the settings that apply to every request, such as CORS.
	Front PreAuth
	// ShutdownDelay is how long the server keeps serving after it has reported that it is not
	// ready; the default is 0.
	ShutdownDelay time.Duration
	// ShutdownIdle is how long a stopping server waits for idle connections: the client may just be
	// sending a request, and HTTP/1.1 has no way to stop it. 0 is one second.
	ShutdownIdle time.Duration
	// ShutdownRetryAfter makes a stopping server accept connections until all requests in progress
	// have ended, and answer new requests with Retry-After.
	ShutdownRetryAfter bool
	// ShutdownTimeout is how long requests in progress may take to end at shutdown; 0 is
	// RequestTimeout.
	ShutdownTimeout time.Duration

	// PolicyStored is closed by its owner when the default RBAC roles and bindings are stored; nil
	// if no component stores them.
	PolicyStored <-chan struct{}
	// ShutdownWatches spreads the end of the watches over this time at shutdown; 0 ends all at
	// once.
	ShutdownWatches time.Duration
	// LivezGrace is how long after its start the server reports that it is alive, whatever fails.
	LivezGrace time.Duration
	// ExternalEndpoints leaves the endpoints of the Service kubernetes to another program.
	ExternalEndpoints bool

	// StoreHealth is checked beside the store's answers: /livez and /readyz fail with its error.
	// May be nil.
	StoreHealth func() error
	// Components are reported by componentstatuses, beside the store.
	Components []Component
	// Checks are health checks of other parts of the process, on /healthz and /livez.
	Checks []zpages.Check
	// NoProfiling disables the pages with the process's own profiles.
	NoProfiling bool
	// Settings returns the process's flags for /flagz; nil disables the page.
	Settings func() map[string]string
	// Collectors are metrics of other parts of the process to show on /metrics.
	Collectors []prometheus.Collector

	Logger *slog.Logger
	// Clock returns the current time; nil is time.Now.
	Clock func() time.Time
}

// Server serves the API. Create it with New, set its security with Use, serve with Run.
type Server struct {
	cfg       Config
	shared    *registry.Shared
	transport transport.Transport
	endpoints *registry.Kinds
	services  *service.Allocator
	log       *slog.Logger
	clock     func() time.Time
	createdAt time.Time
	access    access
	engine    *verb.Engine
	nodes     *node.Connector
	resources *rest.Handler
	watches   *watch.Server
	clients   *local.Clients
	handler   http.Handler
	discovery *discovery.Handler
	custom    *definitions.Kinds
	// customDocs adds custom kinds to discovery and OpenAPI.
	customDocs   *definitions.Documents
	remotes      *aggregation.Aggregator
	routes       *client.Routes // to the Services of conversion webhooks
	flow         *flowControl
	insight      *insight
	boot         *bootstrapper
	living       *endpointKeeper
	identity     *identity
	impersonator *impersonator
	metrics      *telemetry.Metrics

	// ctx ends when the server closes. The caches and the background goroutines run under it.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// started is closed when the objects that every cluster needs are stored.
	started chan struct{}

	// stopping is set when the server reports that it is not ready any more; leaving, when it
	// accepts no new connections. endStreams then ends watches and other streams.
	stopping, leaving atomic.Bool
	lost              atomic.Bool // the store has not answered for a while
	// inProgress counts the short requests in progress. It is used only with ShutdownRetryAfter.
	inProgress atomic.Int64
	streaming  context.Context
	endStreams context.CancelFunc
	handled    watchCancels
}

// Security authenticates and authorizes users, and answers the review APIs.
type Security struct {
	// Authenticator may be nil: then every request is anonymous.
	Authenticator auth.Authenticator
	// Authorizer may be nil: then nothing is allowed.
	Authorizer auth.Authorizer
	Admission  admission.Chain
	// TokenIssuer serves serviceaccounts/NAME/token.
	TokenIssuer verb.TokenIssuer
	// Tokens and Audiences (the server's own audiences) answer TokenReviews.
	Tokens    auth.TokenAuthenticator
	Audiences []string
	// Rules answers SelfSubjectRulesReviews.
	Rules verb.RulesReviewer
	// Paths are served besides the API: /.well-known/openid-configuration, /openid/v1/jwks.
	Paths map[string]http.Handler
}

// New creates a Server. Its Client and Handler work at once. Call Close if Run is not called.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil {
		return nil, errors.New("apiserver: no store")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Alone == nil {
		cfg.Alone = func() bool { return true }
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
	if cfg.NodePorts == (service.PortRange{}) {
		cfg.NodePorts = service.PortRange{Base: 30000, Size: 2768}
	}
	m := telemetry.NewMetrics()
	s := &Server{cfg: cfg, metrics: m, log: cfg.Logger, clock: cfg.Clock, createdAt: cfg.Clock(), started: make(chan struct{})}
	pool := taskpool.NewPool()
	var err error
	s.transport, err = transport.New(cfg.Transport, transport.Config{
		Pool: pool, WriteTimeout: cfg.RequestTimeout, HandshakeGrace: min(5*time.Second, cfg.ShutdownTimeout), Logger: cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}
	s.shared = &registry.Shared{Log: cfg.Logger, Clock: cfg.Clock, Store: m.Store, Writes: m.Writes, Lanes: s.transport.Lanes(), Alone: cfg.Alone, EventTTL: cfg.EventTTL, LeaseReuse: cfg.LeaseReuse, Gates: cfg.Gates}
	if err := s.shared.Open(cfg.Store, cfg.Places); err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}
	if cfg.Causes != nil {
		s.shared.Causes = cfg.Causes
		m.Registry.MustRegister(cfg.Causes.Collectors()...)
		s.exportChanges()
	}
	s.impersonator = &impersonator{access: &s.access, metrics: m.Security, clock: cfg.Clock, lastModes: memo.Memo[string, impersonationMode]{Size: 1024}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.streaming, s.endStreams = context.WithCancel(s.ctx)
	s.Use(cfg.Security)
	s.custom = &definitions.Kinds{Ctx: s.ctx, Shared: s.shared, Served: map[schema.GroupResource]*definitions.CustomKind{}, First: func() bool { return s.living.first() }}
	s.customDocs = &definitions.Documents{Kinds: s.custom}
	s.endpoints = registry.NewKinds(s.shared, cfg.Switches)
	s.endpoints.Join(s.custom)
	s.insight = &insight{cfg: &s.cfg, access: &s.access, endpoints: s.endpoints, client: s.Client, handler: func() http.Handler { return s.handler }}
	if cfg.History != nil {
		s.insight.past = &past.Past{Log: cfg.History, Kinds: s.endpoints, Place: s.shared.Home, Clock: cfg.Clock}
		s.insight.past.Open()
		m.Registry.MustRegister(cfg.History.Collectors()...)
	}
	s.engine = &verb.Engine{Kinds: s.endpoints, Access: &s.access, Components: s.componentStatuses}
	if s.insight.past != nil {
		s.engine.Past = s.insight.past
	}
	s.custom.Engine, s.custom.Client, s.custom.Metrics = s.engine, s.webhookClient, m.Conversions
	s.services = &service.Allocator{Kinds: s.endpoints, Metrics: service.NewAllocationMetrics(), CIDRs: cfg.ServiceCIDRs, Ports: cfg.NodePorts, Owned: s.owned}
	m.Registry.MustRegister(s.services.Metrics.Collectors()...)
	s.hookKinds()
	s.watches = &watch.Server{Log: s.log, Timeout: cfg.RequestTimeout, MinDuration: cfg.MinWatch, Transport: s.transport, Pace: taskpool.NewPace(), Pool: pool, WaitGroup: &s.wg, Leaving: &s.leaving, Lost: &s.lost}
	s.nodes = &node.Connector{Engine: s.engine, Metrics: m.Writes, Log: s.log, Egress: cfg.Egress, TLS: cfg.KubeletTLS, Roots: cfg.KubeletRoots, Addresses: cfg.KubeletAddresses}
	s.insight.nodes = s.nodes
	s.engine.Meter = node.NewMeter(s.nodes, cfg.Clock)
	s.resources = &rest.Handler{Engine: s.engine, Metrics: m, Watches: s.watches, Connect: s.nodes.Connect}
	if cfg.Audit != nil {
		cfg.Audit.Metrics = s.metrics.Audit
	}
	s.clients = &local.Clients{Engine: s.engine, Audit: cfg.Audit}
	s.routes = client.NewRoutes(s.ctx, s.ownClient())
	s.remotes = aggregation.New(aggregation.Config{Client: s.ownClient(), Switches: cfg.Switches, Certificate: cfg.ProxyCertificate, Dial: cfg.Egress.To(egress.Cluster), Reports: func() bool { return s.living.first() }, Logger: cfg.Logger, Clock: cfg.Clock})
	s.metrics.Registry.MustRegister(append(cfg.Collectors, s.remotes, registry.KindMetrics{Kinds: s.endpoints}, service.AllocatedMetrics{Services: s.services})...)
	if encrypted, ok := cfg.Store.(registry.EncryptedStore); ok {
		s.metrics.Registry.MustRegister(encrypted.Collectors()...)
		encrypted.OnRepair(s.shared.Relist)
	}
	s.boot = &bootstrapper{cfg: &s.cfg, kinds: s.endpoints, engine: s.engine, client: s.ownClient(), log: s.log, clock: s.clock,
		trustPublished: newMilestone(), tokensTracked: newMilestone()}
	s.living = &endpointKeeper{boot: s.boot, place: s.shared.Home, self: cfg.Advertise, alone: cfg.Alone, log: s.log, kept: newMilestone()}
	s.identity = newIdentity(s.boot, cfg.Identity, cfg.Advertise, s.log)
	s.flow = &flowControl{kinds: s.endpoints, client: s.ownClient(), metrics: m, log: s.log, clock: s.clock, exempt: s.insight.asksItself}
	if cfg.MaxRequests >= 0 {
		s.flow.gate = flow.New(flow.Config{Seats: cfg.MaxRequests, MaxWait: cfg.RequestTimeout / 4, Logger: cfg.Logger})
		s.metrics.Registry.MustRegister(s.flow.gate)
	}
	s.clients.Remotes = s.remotes
	s.discovery = discovery.New(discovery.Providers{s.customDocs, s.remotes}, cfg.Advertise.String(), cfg.Switches)
	s.clients.Discovery = s.discovery
	s.handler = s.newHandler()
	return s, nil
}

// Use sets the server's authenticator, authorizer and admission.
func (s *Server) Use(security Security) { s.access.current.Store(&security) }

// Client returns a client for a component, which acts as the given user.
func (s *Server) Client(user auth.User) client.Interface { return s.clients.Of(user, nil) }

// FencedClient returns a client whose writes are refused once the fence's term has ended. Errors of
// refused writes are store.ErrFenced.
func (s *Server) FencedClient(user auth.User, fence *store.Fence) client.Interface {
	return s.clients.Of(user, fence)
}

// CatchUp waits until Views show everything that was committed before the call, on any server.
func (s *Server) CatchUp(ctx context.Context) error { return s.shared.CatchUpAll(ctx) }

// Register adds collectors of other packages to the server's metrics.
func (s *Server) Register(collectors ...prometheus.Collector) {
	s.metrics.Registry.MustRegister(collectors...)
}

// Handler serves the API over HTTP.
func (s *Server) Handler() http.Handler { return s.handler }

// Run serves on the listener until ctx ends, then waits for requests in progress and closes the
// server. A nil tlsConfig serves without TLS.
func (s *Server) Run(ctx context.Context, listener net.Listener, tlsConfig *tls.Config) error {
	defer s.Close()
	if tlsConfig != nil {
		tlsConfig = tlsConfig.Clone()
	}
	var connections openConnections
	server := &http.Server{
		ConnState: connections.changed,
		Handler:   s.handler, TLSConfig: tlsConfig, ReadHeaderTimeout: 32 * time.Second, IdleTimeout: 90 * time.Second,
		MaxHeaderBytes: 1 << 20, ErrorLog: s.httpErrors(),
	}
	listener, err := s.transport.Prepare(server, listener)
	if err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}
	s.startBackground()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("apiserver: serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	s.shutDown(server, listener, &connections)
	<-failed
	closePending(listener)
	return nil
}

// closePending closes the connections that a closed listener had accepted and the server has not
// taken.
func closePending(listener net.Listener) {
	for c, err := listener.Accept(); err == nil; c, err = listener.Accept() {
		_ = c.Close()
	}
}

// httpErrors counts the HTTP library's errors about connections and logs them at debug level.
func (s *Server) httpErrors() *log.Logger {
	return log.New(connectionErrors{s.metrics.TLSErrors, slog.NewLogLogger(s.log.Handler(), slog.LevelDebug).Writer()}, "", 0)
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

// startBackground starts the server's background goroutines. The server is ready when the bootstrap
// objects are stored.
func (s *Server) startBackground() {
	for _, at := range s.shared.Places {
		s.runInBackground(func(ctx context.Context) { s.compact(ctx, at) })
	}
	if s.insight.past != nil {
		s.runInBackground(s.insight.past.Run)
	}
	s.runInBackground(s.custom.Run)
	s.runInBackground(s.followQuorum)
	// In the background, so that the first write does not wait for the parser.
	s.runInBackground(func(context.Context) { openapi.TypeConverter() })
	s.runInBackground(func(ctx context.Context) {
		for !s.createBootstrapObjects(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
		}
		close(s.started)
		s.runInBackground(s.aggregate)
		if s.flow.gate != nil {
			s.runInBackground(s.flow.follow)
			s.runInBackground(s.flow.gate.Run)
		}
		s.runInBackground(s.living.run)
		if s.cfg.Identity != "" {
			s.runInBackground(func(ctx context.Context) { s.identity.run(ctx, s.living.kept) })
		}
		s.boot.keep(ctx)
	})
}

// createBootstrapObjects creates the objects that every cluster needs and reports whether it
// succeeded.
func (s *Server) createBootstrapObjects(ctx context.Context) bool {
	if err := s.boot.create(ctx, append(s.boot.objects(), localServices(s.cfg.Switches)...)); err != nil {
		if ctx.Err() == nil {
			s.log.Error("the bootstrap objects were not created, trying again", "err", err)
		}
		return false
	}
	return true
}

// Started waits until the objects that every cluster needs are stored.
func (s *Server) Started(ctx context.Context) error {
	select {
	case <-s.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return errors.New("the API server was closed before the bootstrap objects were created")
	}
}

// runInBackground runs fn in a goroutine until the server closes.
func (s *Server) runInBackground(fn func(ctx context.Context)) {
	s.wg.Go(func() { fn(s.ctx) })
}

// Close stops the background goroutines and waits for them. It does not close the store.
func (s *Server) Close() {
	s.cancel()
	s.watches.Streams.Close()
	if err := s.transport.Close(); err != nil {
		s.log.Warn("the transport did not close cleanly", "err", err)
	}
	s.wg.Wait()
	for _, at := range s.shared.Places {
		at.Cache.Close()
	}
	s.cfg.Audit.Close()
	if s.cfg.Causes != nil {
		if s.cfg.Changes != nil {
			s.cfg.Changes.Close() // it asks the log
		}
		s.cfg.Causes.Close()
	}
	if s.cfg.History != nil {
		s.cfg.History.Close()
	}
}
