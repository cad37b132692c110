package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/utils/clock"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/service"
	"github.com/knarr-project/knarr/internal/apiserver/transport"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/oidc"
	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/auth/rbac"
	"github.com/knarr-project/knarr/internal/auth/rotation"
	"github.com/knarr-project/knarr/internal/auth/signer"
	"github.com/knarr-project/knarr/internal/auth/token"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/measured"
	"github.com/knarr-project/knarr/internal/clusterinfo"
	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controllers"
	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/insight/questions"
	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/reload"
	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/upgrade"
	"github.com/knarr-project/knarr/internal/version"
)

// Options configure a Server.
type Options struct {
	Config *config.Config
	Log    *slog.Logger
	// Settings returns the values of all flags for /flagz. If nil, the page does not exist.
	Settings func() map[string]string
	// Clock is the clock of the API server, of tokens and of controllers; nil selects the machine's
	// time. Certificates, the store, nodes' heartbeats and the scheduler always follow the
	// machine's time.
	Clock clock.WithTicker
	// KeyClock is the clock of certificates: their renewal, and the verification of clients'. It is
	// for tests; nil selects the machine's time.
	KeyClock clock.WithTicker
	// Controllers selects controllers by name. If nil, all run.
	Controllers func(name string) bool
	// Unsynced does not sync the store's writes, so a crash of the machine loses acknowledged
	// writes. It is for tests.
	Unsynced bool
	// ShutdownTimeout is the time limit for running requests when the server stops; 0 selects the
	// timeout of requests. Over HTTP/2, closing a client's connection alone takes a second.
	ShutdownTimeout time.Duration
	// Restart starts the process again with the program installed at Program; nil means that the
	// process cannot. NodeHere means that the process includes a node.
	Restart  func()
	Program  string
	NodeHere bool
}

// Server holds the control plane's parts during the start. One component sets each field;
// components of later phases read it.
type Server struct {
	// Alone means that controllers and scheduler run elsewhere.
	Alone bool

	cfg             *config.Config
	log             *slog.Logger
	settings        func() map[string]string
	clock           clock.WithTicker
	ticks           clock.WithTicker // of certificates; nil is the machine's
	choose          func(controller string) bool
	unsynced        bool
	shutdownTimeout time.Duration

	// Metrics of the components in this process, which the API server serves.
	scheduling  *scheduler.Metrics
	controllers *controllers.Metrics
	calls       *measured.Metrics // of both

	url  string // the API server's URL for this machine
	port int    // of the API server
	keys *pki.PKI
	// keysDone is closed at the end of StartKeys.
	keysDone chan struct{}
	// rotation follows the cluster's decisions about authorities and keys.
	rotation *rotation.Manager
	keysNews news             // about the CA and the service account keys, for controllers
	tracer   *trace.Tracer    // nil disables tracing
	egress   *egress.Selector // nil dials directly

	raw    store.Store // the engine, without other prefixes and encryption
	db     store.Store
	engine *etcd.Engine // below db; nil if the store is outside
	// slowDisk holds the last report that waits for its event.
	slowDisk chan etcd.SlowDisk
	alone    func() bool         // no other server uses db now
	places   []registry.Override // stores of kinds that are not in the main store
	// members are those of the embedded store; nil for an outside one. engineDone is closed when
	// the embedded store has stopped.
	members    membership
	engineDone <-chan struct{}
	changing   sync.Mutex    // held while a server is added or removed
	pause      time.Duration // second in tests

	leadership *leadership

	api    *apiserver.Server
	tokens *token.Service

	// signer signs service account tokens externally. If nil, this process signs them.
	signer       *signer.Signer
	policyStored chan struct{} // closed when the bootstrap policy is stored
	policyTried  chan struct{} // closed when the first attempt to store it has ended
	frontProxies auth.Authenticators
	proxyHeaders auth.FrontProxyHeaders
	// proxyAuthorities are the CAs from --requestheader-client-ca-file.
	proxyAuthorities []*x509.Certificate
	clients          *clientAuthorities
	outside          *oidc.Tokens
	// page serves the page in the browser; nil if it is turned off.
	page  *http.ServeMux
	files []*reload.File // configuration files whose changes are applied

	upgrades  *upgrade.Agent
	orders    *orders
	downloads chan struct{} // one for each program that is being served
}

// New prepares a Server. Its Start methods are components of a process.
func New(o Options) *Server {
	s := &Server{keysDone: make(chan struct{}), scheduling: scheduler.NewMetrics(), controllers: controllers.NewMetrics(), calls: measured.New(), leadership: newLeadership(), cfg: o.Config, log: o.Log, settings: o.Settings, clock: o.Clock, choose: o.Controllers, ticks: o.KeyClock, unsynced: o.Unsynced, shutdownTimeout: o.ShutdownTimeout}
	s.openUpgrades(o)
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	return s
}

// URL is the API server's URL for this machine, valid once the server runs.
func (s *Server) URL() string { return s.url }

// Client returns access to the API in this process, once the API server runs.
func (s *Server) Client(u auth.User) client.Interface { return s.api.Client(u) }

// Keys returns the cluster's certificates and keys, once StartKeys has finished.
func (s *Server) Keys() *pki.PKI { return s.keys }

func (s *Server) StartKeys(ctx context.Context) (wait func() error, err error) {
	defer close(s.keysDone)
	keys, err := pki.Open(pki.Config{
		Dir:           s.cfg.Path("pki"),
		ServiceIPs:    []net.IP{s.cfg.ServiceIP(1).AsSlice()},
		ClusterDomain: s.cfg.ClusterDomain,
		Names:         append([]string{s.cfg.NodeName, s.cfg.AdvertiseAddress, localAddress(s.cfg.Listen)}, s.cfg.TLSNames...),
		NodeName:      s.cfg.NodeName,
		NodeAddresses: []string{s.cfg.NodeAddress(), "127.0.0.1"},
		Clock:         s.keyClock(),
		PeerNames:     s.peerNames(),
	})
	if err != nil {
		return nil, err
	}
	s.keys = keys
	return process.Background(s.keys.Run)(ctx)
}

func (s *Server) StartStore(ctx context.Context) (func() error, error) {
	var err error
	if s.egress, err = egress.Load(s.cfg.APIServer.Egress); err != nil {
		return nil, err
	}
	if s.tracer, err = openTracer(ctx, s.cfg.APIServer.Tracing, s.egress.To(egress.ControlPlane), s.log.With("component", "apiserver")); err != nil {
		return nil, err
	}
	if err := AdoptEncryption(s.cfg); err != nil {
		return nil, fmt.Errorf("encryption configuration: %w", err)
	}
	existed := s.hasStore()
	err = s.openStores(ctx)
	if err == nil && !s.cfg.SharesStore() {
		err = s.keepBefore(ctx, existed)
	}
	if err != nil {
		_ = s.closeStores() // the first error is the cause
		_ = s.tracer.Close()
		return nil, err
	}
	return func() error {
		select {
		case <-ctx.Done(): // then no more requests arrive
			s.handOver()
		case <-s.failed():
			return errors.Join(s.whyFailed(ctx), s.closeStores())
		case <-s.engineDone:
			return errors.Join(s.whyStopped(), s.closeStores())
		}
		if err := s.tracer.Close(); err != nil {
			s.log.Warn("cannot send the last spans", "component", "apiserver", "err", err)
		}
		return s.closeStores()
	}, nil
}

func (s *Server) StartAPI(ctx context.Context) (func() error, error) {
	// The keys may have been replaced since this server's last start.
	if err := s.openRotation(ctx); err != nil {
		return nil, err
	}
	if err := s.checkIdentity(ctx); err != nil {
		return nil, err
	}
	if err := s.checkSkew(ctx, version.Kubernetes); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return nil, clusters.Here().PortTaken(err, s.cfg.Listen, "listen")
	}
	port := listener.Addr().(*net.TCPAddr).Port // chosen by the kernel if Listen has port 0
	s.port = port
	first, last, err := s.cfg.NodePorts()
	if err != nil {
		return nil, err
	}
	never := func(setting time.Duration) time.Duration { // the flags' value 0
		if setting == 0 {
			return -1
		}
		return setting
	}
	auditLog, err := openAudit(&s.cfg.APIServer.Audit, s.egress.To(egress.ControlPlane), s.log.With("component", "audit"))
	if err != nil {
		return nil, err
	}
	proxies, trust, err := s.proxies()
	if err != nil {
		return nil, err
	}
	if err := s.openClientAuthorities(ctx); err != nil {
		return nil, err
	}
	secure, err := s.serverTLS(ctx)
	if err != nil {
		return nil, err
	}
	outward, err := s.outward(ctx)
	if err != nil {
		return nil, err
	}
	s.frontProxies, s.proxyHeaders = proxies, trust.Headers
	gates := config.EnabledGates(s.cfg.APIServer.FeatureGates)
	switches, err := api.ParseSwitches(s.cfg.APIServer.RuntimeConfig, gates...)
	if err != nil {
		return nil, fmt.Errorf("--runtime-config: %w", err)
	}
	if slices.Contains(gates, "GangScheduling") && !switches.Serves(api.ResourceOf(&schedulingv1alpha2.PodGroup{})) {
		return nil, errors.New("--feature-gates GangScheduling=true: needs --runtime-config scheduling.k8s.io/v1alpha2=true, for PodGroups")
	}
	if s.cfg.APIServer.Profiling && s.cfg.APIServer.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	front := &s.cfg.APIServer.Front
	origins, err := front.Expressions()
	if err != nil {
		return nil, err
	}
	causalLog, objectHistory := s.openCauses(), s.openHistory()
	changes, err := s.openChanges(causalLog)
	if err != nil {
		return nil, err
	}
	s.policyStored, s.policyTried = make(chan struct{}), make(chan struct{})
	s.api, err = apiserver.New(apiserver.Config{
		Store:        s.db,
		Places:       s.places,
		ServiceCIDRs: s.cfg.ServiceRanges(),
		NodePorts:    service.PortRange{Base: first, Size: last - first + 1},
		Advertise:    netip.AddrPortFrom(netip.MustParseAddr(s.cfg.AdvertiseAddress), uint16(port)),
		Identity:     s.cfg.NodeName,
		Alone:        s.alone,

		KubeletTLS:         outward.kubelets,
		KubeletRoots:       outward.roots,
		KubeletAddresses:   s.cfg.APIServer.Kubelets.Order(),
		ProxyCertificate:   outward.proxy,
		Trust:              trust,
		Egress:             s.egress,
		Audit:              auditLog,
		Causes:             causalLog,
		Peers:              s.insightPeers,
		PeerHTTP:           s.insightClient,
		Answerers:          questions.All(),
		History:            objectHistory,
		Changes:            changes,
		Tracer:             s.tracer,
		MaxRequests:        s.cfg.APIServer.Seats(),
		RequestTimeout:     s.cfg.APIServer.RequestTimeout.Duration,
		Switches:           switches,
		Gates:              gates,
		MinWatch:           time.Duration(s.cfg.APIServer.MinRequestTimeout) * time.Second,
		Front:              apiserver.PreAuth{Origins: origins, StrictTransport: strings.Join(front.StrictTransport, "; "), GoAway: front.GoAway, Page: s.servePage()},
		Transport:          transport.Kind(s.cfg.APIServer.HTTPTransport),
		ShutdownDelay:      s.cfg.APIServer.ShutdownDelay.Duration,
		ShutdownRetryAfter: s.cfg.APIServer.ShutdownRetryAfter,
		ShutdownIdle:       s.cfg.APIServer.ShutdownIdle.Duration,
		ShutdownWatches:    s.cfg.APIServer.ShutdownWatches.Duration,
		LivezGrace:         s.cfg.APIServer.LivezGrace.Duration,
		ExternalEndpoints:  !s.cfg.APIServer.KeepsEndpoints(),
		NoProfiling:        !s.cfg.APIServer.Profiling,
		EventTTL:           never(s.cfg.APIServer.EventTTL.Duration),
		LeaseReuse:         time.Duration(s.cfg.APIServer.LeaseReuse) * time.Second,
		NoPrivileged:       !s.cfg.APIServer.AllowPrivileged,

		CompactEvery: never(s.cfg.CompactionInterval.Duration),
		Settings:     s.settings,
		PolicyStored: s.policyStored,
		Components:   s.components(),
		Collectors:   slices.Concat(s.controllers.Collectors(), s.scheduling.Collectors(), s.calls.Collectors(), s.egress.Collectors(), s.storeMetrics(), []prometheus.Collector{s.leadership}),
		StoreHealth:  s.storeHealth(),
		Checks:       s.leaderChecks(),
		Logger:       s.log.With("component", "apiserver"),
		Clock:        s.clock.Now,

		ShutdownTimeout: s.shutdownTimeout,
	})
	if err != nil {
		if causalLog != nil {
			causalLog.Close()
		}
		if objectHistory != nil {
			objectHistory.Close()
		}
		return nil, err
	}
	// Authentication and authorization data must live until the last request is answered, which is
	// after ctx ends.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	settled := context.AfterFunc(ctx, end)
	policy, err := s.secure(life)
	if err != nil {
		end()
		s.api.Close()
		return nil, err
	}
	settled()
	s.url = "https://" + net.JoinHostPort(localAddress(s.cfg.Listen), strconv.Itoa(port))
	if err := s.keys.WriteKubeconfig(s.cfg.AdminKubeconfig(), s.url, s.keys.Admin); err != nil {
		end()
		s.api.Close()
		return nil, err
	}
	if s.cfg.SharesStore() || s.members != nil && !s.members.Alone() {
		if err := s.publishServer(ctx); err != nil {
			s.log.Warn("other servers do not learn the address of this one before its next start", "component", "apiserver", "err", err)
		}
	}
	return s.serve(ctx, listener, secure, policy, life, end)
}

// own returns the API server's client for its own needs.
func (s *Server) own() client.Interface {
	return s.api.Client(auth.Component(auth.UserAPIServer, auth.GroupMasters))
}

// localAddress returns the address at which this machine reaches a server that listens on listen.
func localAddress(listen string) string {
	at, err := netip.ParseAddrPort(listen)
	if err != nil || at.Addr().IsUnspecified() {
		return "127.0.0.1" // opening the listener reports the error
	}
	return at.Addr().String()
}

// paths are served in addition to the API. Token issuers whose URL is not https have no discovery
// documents.
func (s *Server) paths() map[string]http.Handler {
	paths := s.memberPaths()
	paths[SnapshotPath] = serveSnapshot(s.db, s.cfg.SharesStore(), s.log)
	paths[member.ServersPath] = http.HandlerFunc(s.serveServers)
	s.certificatePaths(paths)
	s.upgradePaths(paths)
	if strings.HasPrefix(s.tokens.Issuer, "https://") {
		paths["/.well-known/openid-configuration"] = http.HandlerFunc(s.tokens.ServeConfiguration)
		paths["/openid/v1/jwks"] = http.HandlerFunc(s.tokens.ServeKeys)
	}
	return paths
}

// serve answers requests until ctx ends and running requests are answered. Then it ends life, the
// context of the work started by secure.
func (s *Server) serve(ctx context.Context, listener net.Listener, secure *tls.Config, policy *rbac.Authorizer, life context.Context, end func()) (func() error, error) {
	done := make(chan error, 1)
	go func() {
		done <- process.Alongside(ctx,
			func(ctx context.Context) error {
				defer end()
				return s.api.Run(ctx, listener, secure)
			},
			func(context.Context) error {
				if s.signer != nil {
					s.signer.Run(life)
				}
				return nil
			},
			func(ctx context.Context) error {
				err := s.followFiles(ctx) // changed files may change the issuers
				<-life.Done()
				s.outside.Close()
				return err
			},
			s.reportSlowDisks,
			process.Part(func(ctx context.Context) { s.bootstrapPolicy(ctx, policy) }),
			process.Part(s.followKeys),
			process.Part(s.followUpgrades))
	}()
	return func() error { return <-done }, nil
}

// AwaitFirstObjects waits until the first objects, such as namespaces, exist. It is the last part
// of a server's start; components that start earlier do not need these objects.
func (s *Server) AwaitFirstObjects(ctx context.Context) (func() error, error) {
	if err := s.api.Started(ctx); err != nil {
		return nil, err
	}
	if !s.Alone {
		if err := clusterinfo.Publish(ctx, s.own(), s.clusterInfo()); err != nil {
			return nil, err
		}
	}
	return s.keepSnapshots(ctx)
}

// components are listed in componentstatuses. Components outside of this process may be on this
// machine, on upstream's ports.
func (s *Server) components() []apiserver.Component {
	if !s.Alone {
		return []apiserver.Component{{Name: "scheduler"}, {Name: "controller-manager"}}
	}
	return []apiserver.Component{{Name: "scheduler", Health: "https://127.0.0.1:10259/healthz"}, {Name: "controller-manager", Health: "https://127.0.0.1:10257/healthz"}}
}
