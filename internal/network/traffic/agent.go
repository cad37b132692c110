package traffic

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/network/nft"
)

// Config configures the Agent of one node.
type Config struct {
	NodeName string
	// Client reads and updates the node's Traffic.
	Client client.Interface
	// ClusterCIDRs contain all pods. All other addresses are outside. If empty, nothing is counted.
	ClusterCIDRs []netip.Prefix
	// ServiceCIDRs contain all cluster IPs. Connections to one without endpoints are not counted.
	ServiceCIDRs []netip.Prefix
	// Interval is the time between two readings; default 1 s.
	Interval time.Duration
	// Report is the time between two updates of the object without a new flow; default 1 min.
	Report time.Duration
	// CheckInterval is the time between two looks whether another program has changed the rules;
	// default 10 s.
	CheckInterval time.Duration
}

// Agent counts connections on one node. Make it with New.
type Agent struct {
	cfg  Config
	wake chan struct{} // the Traffic object has come or gone
	// The loop's goroutine owns what follows.
	kernel kernel
	counts counts
	// unsent are connections that the object does not have yet. Their number is bounded by that of
	// the kernel's flows.
	unsent map[flow]news
	first  map[flow]time.Time // when unsent ones were first seen
	known  map[verdict]bool   // sent already
	sent   time.Time
}

// verdict is a flow that is denied or allowed.
type verdict struct {
	flow
	denied bool
}

// New checks the configuration. It changes nothing on the machine; Run does.
func New(cfg Config) (*Agent, error) {
	if cfg.NodeName == "" {
		return nil, errors.New("traffic: the node's name is missing")
	}
	cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	cfg.Report = cmp.Or(cfg.Report, time.Minute)
	cfg.CheckInterval = cmp.Or(cfg.CheckInterval, 10*time.Second)
	return &Agent{cfg: cfg, wake: make(chan struct{}, 1)}, nil
}

// longestPause is the pause between two looks whether the server has the definition of Traffic.
const longestPause = 5 * time.Second

// Run counts while the node's Traffic exists, until ctx ends. At its end it removes its rules.
func (a *Agent) Run(ctx context.Context) error {
	defer a.kernel.Close()
	// An earlier process may have been killed.
	if err := a.kernel.remove(); err != nil {
		slog.Debug("cannot remove earlier rules that count traffic", "error", err)
	}
	view, ok := a.open(ctx)
	if !ok {
		return nil
	}
	synced, done := view.Subscribe(ctx, func(client.Event) { a.wakeUp() })
	defer func() { <-done }()
	select {
	case <-synced:
	case <-ctx.Done():
		return nil
	}
	for {
		if _, wanted := view.Get("", a.cfg.NodeName); wanted {
			a.count(ctx, view)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		}
	}
}

func (a *Agent) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// open returns the View of the node's Traffic once the server has the definition. It asks before,
// because a View over HTTPS would hide that the definition is missing.
func (a *Agent) open(ctx context.Context) (client.View, bool) {
	scope := client.Scope{FieldSelector: "metadata.name=" + a.cfg.NodeName}
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, longestPause) {
		_, err := a.cfg.Client.List(ctx, architecture.Traffics, "", metav1.ListOptions{FieldSelector: scope.FieldSelector, Limit: 1})
		if err == nil {
			if view, err := a.cfg.Client.View(ctx, architecture.Traffics, scope); err == nil {
				return view, true
			}
		}
		if !pause(ctx, wait) {
			return nil, false
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// count counts until the Traffic is gone or replaced, or ctx ends.
func (a *Agent) count(ctx context.Context, view client.View) {
	defer func() {
		if err := a.kernel.remove(); err != nil {
			slog.Error("cannot remove the rules that count traffic", "error", err)
		}
	}()
	generations := nft.Generations{}
	defer generations.Close()
	seen, checked := uint32(0), time.Time{}
	a.known, a.unsent, a.first = map[verdict]bool{}, map[flow]news{}, map[flow]time.Time{}
	a.sent = time.Now()
	failed, uid := "", types.UID("")
	for wait := time.Duration(0); ; {
		if !pause(ctx, wait) {
			return
		}
		object, wanted := view.Get("", a.cfg.NodeName)
		if !wanted || wait > 0 && uidOf(object) != uid {
			a.wakeUp() // there may be another one
			return
		}
		uid = uidOf(object)
		if time.Since(checked) >= a.cfg.CheckInterval {
			checked = time.Now()
			now, err := generations.Now()
			if a.kernel.rules == nil || (err != nil || now != seen) && !a.kernel.intact() {
				a.install(&failed)
			}
			seen, _ = generations.Now()
		}
		wait = a.cfg.Interval
		if a.kernel.rules == nil {
			continue
		}
		began := time.Now()
		if err := a.read(); err != nil {
			checked, a.kernel.rules = time.Time{}, nil // the sets may be gone
			continue
		}
		wait = max(wait, readingShare*time.Since(began))
		if err := a.report(ctx, object); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			slog.Debug("cannot report traffic; trying again", "error", err)
			wait = max(wait, longestPause)
		}
	}
}

func uidOf(object runtime.Object) types.UID {
	m, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return m.GetUID()
}

// readingShare limits readings of large sets: of this many parts of the time, one is for reading.
const readingShare = 100

// install installs the rules. It logs an error once.
func (a *Agent) install(failed *string) {
	a.counts = counts{}
	err := a.kernel.install(a.cfg.ClusterCIDRs)
	if err == nil {
		*failed = ""
		return
	}
	if err.Error() != *failed {
		slog.Error("traffic is not counted; trying again", "error", err)
		*failed = err.Error()
	}
}

// read reads the kernel's counters.
func (a *Agent) read() error {
	before, err := a.kernel.read(tried)
	if err != nil {
		return err
	}
	behind, err := a.kernel.read(passed)
	if err != nil {
		return err
	}
	now := time.Now()
	for f, n := range a.counts.read(before, behind) {
		if !a.isCounted(f) {
			continue
		}
		if _, ok := a.first[f]; !ok {
			a.first[f] = now
		}
		sum := a.unsent[f]
		a.unsent[f] = news{sum.allowed + n.allowed, sum.denied + n.denied}
	}
	for v := range a.known {
		if a.counts[v.flow] == nil {
			delete(a.known, v)
		}
	}
	return nil
}

// isCounted leaves out connections to cluster IPs without an endpoint, which the proxy refuses.
func (a *Agent) isCounted(f flow) bool {
	return !slices.ContainsFunc(a.cfg.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(f.to) })
}
