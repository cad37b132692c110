package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/spans"
)

// Config configures the proxy.
type Config struct {
	NodeName string
	Client   client.Interface
	// ClusterCIDRs contain all pods. Connections of other clients are masqueraded. If empty, no
	// clients count as outside.
	ClusterCIDRs []netip.Prefix
	// ServiceCIDRs contain all cluster IPs. Connections to unused ones are refused.
	ServiceCIDRs []netip.Prefix
	// Debounce is the minimum time between two changes of the rules; default 10 ms. The first
	// change is immediate.
	Debounce time.Duration
	// Resync is the interval for a full comparison with the kernel; default 5 min.
	Resync time.Duration
	// HealthAddress is the address of health-check node ports; default all addresses.
	HealthAddress string
	// Spans keeps when the rules of EndpointSlices are in the kernel, for traces; may be nil.
	Spans *spans.Ring
}

// Proxy makes Services reachable on this node. Make it with New.
type Proxy struct {
	cfg      Config
	state    *state
	health   *healthServers
	local    *localPorts
	services client.ViewOf[*corev1.Service]
	slices   client.ViewOf[*discoveryv1.EndpointSlice]
	me       self
	// conntrack is kept open, because closing a netfilter socket waits for the kernel (see
	// nft.Generations).
	conntrack *netlink.Handle

	// stateMu guards state. Only the loop's goroutine changes it.
	stateMu sync.Mutex

	mu    sync.Mutex
	dirty map[types.NamespacedName]bool // guarded by mu
	node  *corev1.Node                  // guarded by mu
	wake  chan struct{}
	// awaited are the changes since the last sync, for Spans. mu guards it.
	awaited []awaited

	ready     chan struct{}
	readyOnce sync.Once
}

// Ready is closed when all Services are in the kernel for the first time.
func (p *Proxy) Ready() <-chan struct{} { return p.ready }

// New checks the configuration. It changes nothing on the machine; Run does.
func New(cfg Config) (*Proxy, error) {
	if cfg.NodeName == "" {
		return nil, errors.New("proxy: the node's name is missing")
	}
	if cfg.Debounce == 0 {
		cfg.Debounce = 10 * time.Millisecond
	}
	if cfg.Resync == 0 {
		cfg.Resync = 5 * time.Minute
	}
	return &Proxy{
		cfg: cfg, state: newState(newRuleset(cfg.ClusterCIDRs, cfg.ServiceCIDRs)), health: newHealthServers(cfg.HealthAddress), local: newLocalPorts(),
		me: self{name: cfg.NodeName}, dirty: map[types.NamespacedName]bool{}, wake: make(chan struct{}, 1), ready: make(chan struct{}),
	}, nil
}

// checkInterval is the interval for checking whether another program has changed any rules; some
// firewalls flush everything when they start. A check costs one small message.
const checkInterval = 5 * time.Second

const sliceIndex = "proxy/service"

// Run works until ctx ends. The rules stay, so that Services work while knarr restarts;
// network.Purge removes them.
func (p *Proxy) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var ended []<-chan struct{}
	defer func() {
		cancel()
		for _, done := range ended {
			<-done
		}
		p.health.close()
		p.local.stop()
		p.state.rules.close()
		if p.conntrack != nil {
			p.conntrack.Close()
		}
	}()
	var err error
	if p.conntrack, err = netlink.NewHandle(unix.NETLINK_NETFILTER); err != nil {
		return fmt.Errorf("proxy: conntrack: %w", err)
	}
	if p.services, err = client.Open[*corev1.Service](ctx, p.cfg.Client, client.Scope{}); err != nil {
		return fmt.Errorf("proxy: services: %w", err)
	}
	if p.slices, err = client.Open[*discoveryv1.EndpointSlice](ctx, p.cfg.Client, client.Scope{}); err != nil {
		return fmt.Errorf("proxy: endpointslices: %w", err)
	}
	nodes, err := client.Open[*corev1.Node](ctx, p.cfg.Client, client.Scope{FieldSelector: "metadata.name=" + p.cfg.NodeName})
	if err != nil {
		return fmt.Errorf("proxy: nodes: %w", err)
	}
	p.slices.AddIndex(sliceIndex, func(s *discoveryv1.EndpointSlice) []string {
		if name, ok := serviceOf(s); ok {
			return []string{name.String()}
		}
		return nil
	})
	nodesSynced, done := nodes.Subscribe(ctx, func(e client.TypedEvent[*corev1.Node]) { p.setNode(e.Object) })
	ended = append(ended, done)
	servicesSynced, done := p.services.Subscribe(ctx, func(e client.TypedEvent[*corev1.Service]) {
		p.mark(types.NamespacedName{Namespace: e.Object.Namespace, Name: e.Object.Name})
	})
	ended = append(ended, done)
	slicesSynced, done := p.slices.Subscribe(ctx, func(e client.TypedEvent[*discoveryv1.EndpointSlice]) {
		p.await(e)
		for _, s := range []*discoveryv1.EndpointSlice{e.Old, e.Object} {
			if s != nil {
				if name, ok := serviceOf(s); ok {
					p.mark(name)
				}
			}
		}
	})
	ended = append(ended, done)
	for _, synced := range []<-chan struct{}{nodesSynced, servicesSynced, slicesSynced} {
		select {
		case <-synced:
		case <-ctx.Done():
			return nil
		}
	}
	return p.loop(ctx)
}

func (p *Proxy) mark(name types.NamespacedName) {
	p.mu.Lock()
	p.dirty[name] = true
	p.mu.Unlock()
	p.kick()
}

func (p *Proxy) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Proxy) setNode(n *corev1.Node) {
	p.mu.Lock()
	p.node = n
	p.mu.Unlock()
	p.kick()
}

// loop applies changes: the first at once, further ones at most every Debounce. It checks the
// kernel every Resync, and when another program has changed our rules.
func (p *Proxy) loop(ctx context.Context) error {
	glance := time.NewTicker(checkInterval)
	defer glance.Stop()
	tick := time.NewTicker(p.cfg.Resync)
	defer tick.Stop()
	for first := true; ; first = false {
		if err := p.sync(first); err != nil {
			slog.Error("cannot apply changes of Services; trying again", "error", err)
			if !wait(ctx, time.Second) {
				return nil
			}
			p.kick()
		} else if !wait(ctx, p.cfg.Debounce) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-tick.C:
			p.check()
		case <-glance.C:
			p.local.retry()
			if p.state.rules.rulesChanged() {
				p.check()
			}
		}
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// sync plans the changed Services and sends the differences.
func (p *Proxy) sync(first bool) error {
	p.mu.Lock()
	dirty, node, due := p.dirty, p.node, p.awaited
	p.awaited = nil
	p.dirty = map[types.NamespacedName]bool{}
	p.mu.Unlock()
	if node != nil {
		if zone := node.Labels[corev1.LabelTopologyZone]; zone != p.me.zone {
			p.me.zone = zone
			for name := range p.state.services { // hints may have a new meaning for this node
				dirty[name] = true
			}
		}
	}
	if len(dirty) == 0 && !first && p.state.rules.ready {
		return nil
	}
	start := time.Now()
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	for name := range dirty {
		svc, _ := p.services.Get(name.Namespace, name.Name)
		planned := plan(svc, p.slices.ByIndex(sliceIndex, name.String()), p.me)
		for _, again := range p.state.apply(name, planned) {
			p.mark(again)
		}
		p.health.set(name, planned)
		p.local.set(name, planned)
	}
	if err := p.state.rules.commit(); err != nil && !p.state.rules.ready {
		return errors.Join(err, diagnose())
	} else if err != nil {
		slog.Warn("nftables refused a change; all rules were rewritten", "error", err)
	}
	p.inKernel(due)
	p.readyOnce.Do(func() { close(p.ready) })
	if len(p.state.stale) > 0 {
		if err := p.state.stale.forget(p.conntrack); err != nil {
			slog.Warn("clients may keep sending to removed endpoints", "error", err)
		}
		p.state.stale = staleFlows{}
	}
	slog.Debug("Services synced", "changed", len(dirty), "services", len(p.state.services), "took", time.Since(start))
	return nil
}

// check compares the kernel with the desired content, and repairs differences.
func (p *Proxy) check() {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	difference, err := p.state.rules.verify()
	switch {
	case err != nil:
		slog.Warn("cannot check the Service rules", "error", err)
	case difference != "":
		slog.Warn("another program changed the Service rules; rewriting them", "difference", difference)
		if err := p.state.rules.install(); err != nil {
			slog.Error("cannot repair the Service rules", "error", err)
			p.state.rules.ready = false
		}
	}
}
