package aggregation

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/discovery"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/egress"
)

// Config configures an Aggregator.
type Config struct {
	// Client is the server's own client. It reads APIServices, Services and EndpointSlices, and
	// writes conditions.
	Client client.Interface
	// Certificate proves to extension servers that the headers with the user come from this server.
	// Nil: none.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// Switches select the built-in resources that clients are served; nil serves all.
	Switches *api.Switches
	// Reports reports whether this server writes conditions; nil is always. Several servers may
	// find different conditions, because their networks differ. Each of them routes requests by its
	// own checks; the conditions of one of them are written, so that they do not flap.
	Reports func() bool
	// CheckEvery is the interval of checks of an available server; 0 is 30 s.
	CheckEvery time.Duration
	Logger     *slog.Logger
	// Dial connects to extension servers; nil dials directly.
	Dial egress.Dial
	// Clock returns the time for conditions; nil is time.Now.
	Clock func() time.Time
}

// Aggregator has all remotes. Create one with New; it works while Run does. Safe for concurrent
// use.
type Aggregator struct {
	cfg     Config
	metrics *metrics
	// remotes is replaced, never changed.
	remotes  atomic.Pointer[map[schema.GroupVersion]*Remote]
	revision atomic.Uint64
	synced   chan struct{} // closed when all APIServices that existed at the start are known
	specs    specs

	// Of all APIServices; set by Run.
	view atomic.Pointer[client.ViewOf[*apiregistrationv1.APIService]]

	// The following fields belong to the goroutine that follows the APIServices.
	byName  map[string]*Remote
	running sync.WaitGroup

	networkMu sync.Mutex // guards the opening of network
	network   atomic.Pointer[networkViews]
}

// New creates an Aggregator.
func New(cfg Config) *Aggregator {
	if cfg.CheckEvery == 0 {
		cfg.CheckEvery = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Dial == nil {
		cfg.Dial = direct
	}
	if cfg.Reports == nil {
		cfg.Reports = func() bool { return true }
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	a := &Aggregator{cfg: cfg, metrics: newMetrics(), byName: map[string]*Remote{}, synced: make(chan struct{})}
	a.specs.wanted = make(chan struct{}, 1)
	a.remotes.Store(&map[schema.GroupVersion]*Remote{})
	return a
}

// Synced is closed when all APIServices that existed at the start are known.
func (a *Aggregator) Synced() <-chan struct{} { return a.synced }

// Run follows the APIServices until ctx ends.
func (a *Aggregator) Run(ctx context.Context) error {
	view, err := client.Open[*apiregistrationv1.APIService](ctx, a.cfg.Client, client.Scope{})
	if err != nil {
		return err
	}
	a.view.Store(&view)
	local := newRegistrar(a.cfg.Client, view, a.cfg.Logger, a.cfg.Switches)
	synced, done := view.Subscribe(ctx, func(ev client.TypedEvent[*apiregistrationv1.APIService]) {
		a.handle(ctx, ev)
		local.wake()
	})
	a.running.Go(func() { local.run(ctx) })
	a.running.Go(func() { a.specs.run(ctx, a) })
	select {
	case <-synced:
		close(a.synced)
	case <-ctx.Done():
	}
	<-done
	a.running.Wait()
	for _, r := range a.byName {
		r.close()
	}
	return nil
}

// handle applies one change of an APIService.
func (a *Aggregator) handle(ctx context.Context, ev client.TypedEvent[*apiregistrationv1.APIService]) {
	object, have := ev.Object, a.byName[ev.Object.Name]
	remote := ev.Type != client.Deleted && object.Spec.Service != nil
	if have != nil && remote && have.uid == object.UID && equality.Semantic.DeepEqual(have.spec, object.Spec) {
		return // only its status has changed
	}
	if have == nil && !remote {
		return
	}
	if have != nil {
		have.close()
		delete(a.byName, object.Name)
		if !remote {
			a.metrics.forget(object)
		}
	}
	if remote {
		next := newRemote(a, object)
		a.byName[object.Name] = next
		a.running.Go(func() { next.monitor(ctx) })
	}
	table := make(map[schema.GroupVersion]*Remote, len(a.byName))
	for _, r := range a.byName {
		table[r.gv] = r
	}
	a.remotes.Store(&table)
	a.revision.Add(1)
}

// Find returns the remote that serves a path: /apis/GROUP/VERSION and everything below.
func (a *Aggregator) Find(path string) (*Remote, bool) {
	table := *a.remotes.Load()
	if len(table) == 0 {
		return nil, false
	}
	rest, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return nil, false
	}
	group, rest, ok := strings.Cut(rest, "/")
	if !ok {
		return nil, false
	}
	version, _, _ := strings.Cut(rest, "/")
	return a.Serves(schema.GroupVersion{Group: group, Version: version})
}

// Serves returns the remote that serves a group version.
func (a *Aggregator) Serves(gv schema.GroupVersion) (*Remote, bool) {
	r, ok := (*a.remotes.Load())[gv]
	return r, ok
}

// Revision implements discovery.Provider.
func (a *Aggregator) Revision() uint64 { return a.revision.Load() }

// GroupVersions implements discovery.Provider. It returns what each remote serves, or served when
// it last answered.
func (a *Aggregator) GroupVersions() []discovery.GroupVersion {
	var list []discovery.GroupVersion
	for _, r := range *a.remotes.Load() {
		gv := discovery.GroupVersion{
			GroupVersion: r.gv, GroupPriority: r.spec.GroupPriorityMinimum, VersionPriority: r.spec.VersionPriority, Stale: true,
		}
		if found := r.discovered.Load(); found != nil {
			gv.Resources, gv.Stale = found.resources, found.stale
		}
		list = append(list, gv)
	}
	return list
}

// networkViews are Views of the Services and endpoints of extension servers. They are opened with
// the first remote, so that a cluster without remotes does not pay for them.
type networkViews struct {
	services client.ViewOf[*corev1.Service]
	slices   client.ViewOf[*discoveryv1.EndpointSlice]
}

const byService = "aggregation: service"

// openNetwork opens the Views unless they are open. They stay open until the process ends.
func (a *Aggregator) openNetwork(process context.Context) (err error) {
	a.networkMu.Lock()
	defer a.networkMu.Unlock()
	if a.network.Load() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(process)
	defer func() {
		if err != nil {
			cancel() // the next attempt opens them again
		}
	}()
	services, err := client.Open[*corev1.Service](ctx, a.cfg.Client, client.Scope{})
	if err != nil {
		return err
	}
	slices, err := client.Open[*discoveryv1.EndpointSlice](ctx, a.cfg.Client, client.Scope{})
	if err != nil {
		return err
	}
	slices.AddIndex(byService, func(s *discoveryv1.EndpointSlice) []string {
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
	})
	servicesSynced, servicesDone := services.Subscribe(ctx, func(ev client.TypedEvent[*corev1.Service]) {
		a.serviceChanged(ev.Object.Namespace, ev.Object.Name)
	})
	slicesSynced, slicesDone := slices.Subscribe(ctx, func(ev client.TypedEvent[*discoveryv1.EndpointSlice]) {
		a.serviceChanged(ev.Object.Namespace, ev.Object.Labels[discoveryv1.LabelServiceName])
	})
	a.running.Go(func() { defer cancel(); <-servicesDone; <-slicesDone })
	for _, synced := range []<-chan struct{}{servicesSynced, slicesSynced} {
		select {
		case <-synced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	a.network.Store(&networkViews{services, slices})
	return nil
}

func (a *Aggregator) serviceChanged(namespace, name string) {
	for _, r := range *a.remotes.Load() {
		if r.spec.Service.Namespace == namespace && r.spec.Service.Name == name {
			r.checkNow()
		}
	}
}

// direct connects to extension servers without a proxy.
var direct = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
