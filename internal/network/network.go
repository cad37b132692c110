package network

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/network/policy"
)

// resync is the interval for comparing everything with the kernel without an event.
const resync = time.Minute

// reapDelay is how long a link may outlive its DEL, so that the runtime can remove the network
// namespace first.
const reapDelay = 300 * time.Millisecond

// Network is the pod network of one node. Make it with New.
type Network struct {
	cfg      Config
	files    attachmentFiles
	firewall *firewall
	overlay  *overlay
	turns    turns

	mu          sync.Mutex // guards what follows
	pools       []*ipam    // one per pod range of the node; empty until it has one
	plumbing    plumbing
	attachments map[string]*attachment
	detached    []*attachment   // detached, but their links may still exist
	warned      map[string]bool // topics that have been logged

	wakeReap  chan struct{} // wakes reap
	ready     chan struct{}
	readyOnce sync.Once
}

// Ready is closed when pods can be attached for the first time and reach the existing nodes.
func (n *Network) Ready() <-chan struct{} { return n.ready }

// New checks the configuration. It changes nothing on the machine; Run does.
func New(cfg Config) (*Network, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Network{
		cfg: cfg, files: attachmentFiles{cfg.attachmentDir()}, firewall: newFirewall(cfg), overlay: newOverlay(cfg),
		attachments: map[string]*attachment{}, warned: map[string]bool{}, ready: make(chan struct{}), wakeReap: make(chan struct{}, 1),
	}, nil
}

// Run serves until ctx ends. Pods keep their network afterwards; Purge removes it.
func (n *Network) Run(ctx context.Context) error {
	if err := n.restore(); err != nil {
		return err
	}
	n.prepareMachine()
	defer n.firewall.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes, err := client.Open[*corev1.Node](ctx, n.cfg.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("network: nodes: %w", err)
	}
	wake := make(chan struct{}, 1)
	_, done := nodes.Subscribe(ctx, func(client.TypedEvent[*corev1.Node]) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	defer func() { cancel(); <-done }()

	socket, err := n.listen()
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- n.serve(ctx, socket) }()
	defer func() { cancel(); <-served }()

	reaped := make(chan struct{})
	go func() { defer close(reaped); n.reap(ctx) }()
	defer func() { cancel(); <-reaped }()

	tick := time.NewTicker(resync)
	defer tick.Stop()
	var retries retryState
	for full := true; ; {
		err := n.sync(nodes.List("", nil), full)
		pause, log := retries.next(err, time.Now())
		if log {
			slog.Error("cannot set up the pod network; trying again", "error", err)
		}
		if err != nil {
			if !sleep(ctx, pause) {
				return nil
			}
			full = true
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			served <- err
			return err
		case <-wake:
			full = false
		case <-tick.C:
			full = true
		}
	}
}

const (
	// firstPause and longestPause limit the pause between failed attempts; pauses double.
	firstPause, longestPause = time.Second, 10 * time.Second
	// relogInterval is the interval for logging an unchanged error.
	relogInterval = 10 * time.Minute
)

// retryState is the state of repeated failures.
type retryState struct {
	logged string
	at     time.Time
	pause  time.Duration
}

// next returns the pause before the next attempt and whether to log the error. An error is logged
// at first, when it changes, and every relogInterval.
func (t *retryState) next(err error, now time.Time) (pause time.Duration, log bool) {
	if err == nil {
		*t = retryState{}
		return 0, false
	}
	t.pause = max(firstPause, min(2*t.pause, longestPause))
	if err.Error() == t.logged && now.Sub(t.at) < relogInterval {
		return t.pause, false
	}
	t.logged, t.at = err.Error(), now
	return t.pause, true
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// restore reads the attachments' files. It removes those whose link no longer exists in the kernel.
func (n *Network) restore() error {
	all, err := n.files.load()
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	// A pod may hold a host port of an older one, whose link is about to go.
	for _, a := range byAge(all) {
		key := a.key()
		if len(a.IPs) == 0 || !linkExists(a.HostLink) {
			if err := n.files.remove(key); err != nil {
				return fmt.Errorf("network: %w", err)
			}
			continue
		}
		n.attachments[key] = a
		n.firewall.guards.sources[key] = sourceOf(a)
		for port, target := range a.targets() {
			n.firewall.hostPorts[port] = target
		}
	}
	if n.cfg.Isolation != nil {
		var known []policy.Attachment
		for _, a := range n.attachments {
			known = append(known, a.forPolicies())
		}
		n.cfg.Isolation.Restore(known)
	}
	return nil
}

// sync updates the node's links, rules and routes from the Nodes.
func (n *Network) sync(nodes []*corev1.Node, full bool) error {
	var self *corev1.Node
	for _, node := range nodes {
		if node.Name == n.cfg.NodeName {
			self = node
		}
	}
	if self == nil {
		return nil // not registered yet; the Node's event wakes this loop
	}
	ranges, err := podCIDRs(self)
	if err != nil || len(ranges) == 0 {
		return err
	}
	if n.cfg.Mode == ModeVXLAN {
		if err := n.firewall.setPeers(peerAddresses(self, nodes), ranges, n.cfg.ClusterCIDRs); err != nil {
			return err
		}
	}
	if err := n.useRanges(self, ranges, full); err != nil {
		return err
	}
	if err := n.overlay.sync(self, ranges, nodes, full); err != nil {
		return err
	}
	n.readyOnce.Do(func() { close(n.ready) })
	return nil
}

// useRanges prepares the node for pods of its ranges and then writes the configuration file for the
// runtime.
func (n *Network) useRanges(self *corev1.Node, ranges []netip.Prefix, full bool) error {
	n.mu.Lock()
	same := len(n.pools) == len(ranges)
	for i := range n.pools {
		same = same && n.pools[i].cidr == ranges[i]
	}
	n.mu.Unlock()
	if same && !full {
		return nil
	}
	p := plumbing{mtu: n.podMTU(self)}
	var pools []*ipam
	for _, r := range ranges {
		pool := newIPAM(r)
		pools, p.gateways = append(pools, pool), append(p.gateways, pool.gateway)
	}
	if err := ensureGateway(n.cfg, p); err != nil {
		return err
	}
	if !same {
		if err := n.firewall.install(ranges, n.cfg.ClusterCIDRs); err != nil {
			return err
		}
	} else if err := n.firewall.verify(ranges, n.cfg.ClusterCIDRs); err != nil {
		return err
	}
	n.mu.Lock()
	if !same {
		for key, a := range n.attachments {
			for _, ip := range a.IPs {
				for _, pool := range pools {
					pool.claim(ip, key)
				}
			}
		}
		n.pools = pools
	}
	n.plumbing = p
	n.mu.Unlock()
	n.sweep()
	return n.writeConflist()
}

// reserve allocates the attachment's addresses and writes its file.
func (n *Network) reserve(a *attachment) (plumbing, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pools) == 0 {
		return plumbing{}, errNoRange
	}
	key := a.key()
	old := n.attachments[key]
	if old != nil {
		a.IPs = old.IPs
	} else {
		for _, pool := range n.pools {
			ip, err := pool.allocate(key)
			if err != nil {
				n.releaseLocked(a)
				return plumbing{}, cniErrorf(cniTryAgainLater, "%w", err)
			}
			a.IPs = append(a.IPs, ip)
		}
	}
	if err := n.files.save(a); err != nil {
		if old == nil { // the addresses of a repeated ADD stay in use
			n.releaseLocked(a)
		}
		return plumbing{}, err
	}
	n.attachments[key] = a
	return n.plumbing, nil
}

func (n *Network) releaseLocked(a *attachment) {
	for _, ip := range a.IPs {
		for _, pool := range n.pools {
			pool.release(ip, a.key())
		}
	}
}

// mapPorts maps the attachment's host ports.
func (n *Network) mapPorts(a *attachment) error {
	if err := allowLocalhost(a); err != nil {
		n.warnOnce("localhost", "host ports do not answer on 127.0.0.1", "error", err, "remedy", "make /proc/sys/net writable")
	}
	return n.firewall.add(a)
}

// forgetStale is forget for an attachment that was found without its turn. It does nothing if
// another request has replaced or removed it meanwhile.
func (n *Network) forgetStale(a *attachment) error {
	defer n.turns.enter(a.key())()
	n.mu.Lock()
	same := n.attachments[a.key()] == a
	n.mu.Unlock()
	if !same {
		return nil
	}
	return n.forget(a)
}

// forget undoes an attachment. The caller has the attachment's turn. It removes routes and host
// ports at once, then the link in the background, and finally the file and the addresses.
//
// Removing a link waits for the kernel's RCU grace periods: 20 ms with the lock that every ADD
// needs. The runtime is about to remove the whole network namespace anyway, and the kernel does
// that in batches.
func (n *Network) forget(a *attachment) error {
	if err := unroute(a); err != nil {
		return err
	}
	failpoint.Here("cni-unrouted")
	if len(a.PortMappings) > 0 {
		if err := n.firewall.remove(a); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.attachments[a.key()] == a {
		if n.cfg.Isolation != nil {
			n.cfg.Isolation.Detach(a.key())
		}
		delete(n.attachments, a.key())
		n.detachLocked(a)
	}
	return nil
}

func (n *Network) detachLocked(a *attachment) {
	n.detached = append(n.detached, a)
	select {
	case n.wakeReap <- struct{}{}:
	default:
	}
}

// reap finishes what forget began. It gives the runtime a moment to remove the network namespace,
// and then removes the link itself.
func (n *Network) reap(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wakeReap:
		}
		if !sleep(ctx, reapDelay) {
			return
		}
		n.mu.Lock()
		detached := n.detached
		n.detached = nil
		n.mu.Unlock()
		for _, a := range detached {
			if err := n.removeLink(a); err != nil {
				slog.Warn("pod's link was not removed; trying again", "container", a.ContainerID, "error", err)
				n.mu.Lock()
				n.detachLocked(a)
				n.mu.Unlock()
			}
		}
	}
}

func (n *Network) removeLink(a *attachment) error {
	// An ADD must not come between the look and the removal.
	defer n.turns.enter(a.key())()
	n.mu.Lock()
	// If the attachment was added again meanwhile, the new one owns link and file.
	again := n.attachments[a.key()] != nil
	n.mu.Unlock()
	if !again {
		if err := unplug(a.HostLink); err != nil {
			return err
		}
		failpoint.Here("cni-unplugged")
		if err := n.firewall.denySource(a); err != nil {
			return err
		}
		if err := n.files.remove(a.key()); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.releaseLocked(a)
	return nil
}

// sweep forgets attachments whose link no longer exists, because their network namespace was
// removed without a DEL.
func (n *Network) sweep() {
	n.mu.Lock()
	var stale []*attachment
	for _, a := range n.attachments {
		if !linkExists(a.HostLink) && !namespaceExists(a.NetNS) {
			stale = append(stale, a)
		}
	}
	n.mu.Unlock()
	for _, a := range stale {
		slog.Info("a pod's network namespace was removed without a DEL; its address is free again", "pod", a.PodNamespace+"/"+a.PodName, "ips", a.IPs)
		if err := n.forgetStale(a); err != nil {
			slog.Warn("attachment was not cleaned up", "container", a.ContainerID, "error", err)
		}
	}
}

// podCIDRs parses the node's pod ranges.
func podCIDRs(node *corev1.Node) ([]netip.Prefix, error) {
	texts := node.Spec.PodCIDRs
	if len(texts) == 0 && node.Spec.PodCIDR != "" {
		texts = []string{node.Spec.PodCIDR}
	}
	var out []netip.Prefix
	for _, t := range texts {
		p, err := netip.ParsePrefix(t)
		if err != nil {
			return nil, fmt.Errorf("node %s: podCIDR: %w", node.Name, err)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func (n *Network) warnOnce(topic, msg string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.warned[topic] {
		n.warned[topic] = true
		slog.Warn(msg, args...)
	}
}
