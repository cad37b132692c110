package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/spans"
	"github.com/knarr-project/knarr/internal/network/nft"
	"github.com/knarr-project/knarr/internal/network/peers"
)

// Config configures the Agent of one node.
type Config struct {
	NodeName string
	// Client reads NetworkPolicies, Namespaces and PolicyPeers. With AllPods it also reads pods.
	Client client.Interface
	// Own reads the pods of this node; nil selects Client.
	Own client.Interface
	// AllPods reads the pods of all nodes, because the server publishes no PolicyPeers.
	AllPods bool
	// Debounce is the minimum time between two changes of the rules; default 20 ms. The first
	// change is immediate.
	Debounce time.Duration
	// CheckInterval is the interval for checking whether another program has changed the rules;
	// default 10 s.
	CheckInterval time.Duration
	// Patience is how long Attach waits for the rules of a pod that a policy selects; default 10 s.
	Patience time.Duration
	// Spans keeps when the rules of changes were in the kernel, for traces; nil keeps nothing.
	Spans *spans.Ring
}

// Agent enforces the policies on one node. Make it with New.
type Agent struct {
	cfg        Config
	policies   client.ViewOf[*networkingv1.NetworkPolicy]
	pods       client.ViewOf[*corev1.Pod]
	namespaces client.ViewOf[*corev1.Namespace]
	wake       chan struct{}
	urgent     chan struct{} // a pod waits in Attach
	opened     chan struct{} // closed when policies is open
	shared     attachments
	due        changes
	// The loop's goroutine owns the remaining fields.
	kernel   kernel
	have     plan
	enforces bool // the kernel has rules of ours
	watching bool // pods and namespaces are watched
	groups   map[string]*subscription
	offered  bool // the server has PolicyPeers
	ended    []<-chan struct{}
}

// New checks the configuration. It changes nothing on the machine; Run does.
func New(cfg Config) (*Agent, error) {
	if cfg.NodeName == "" {
		return nil, errors.New("network policies: the node's name is missing")
	}
	if cfg.Own == nil {
		cfg.Own = cfg.Client
	}
	if cfg.Debounce == 0 {
		cfg.Debounce = 20 * time.Millisecond
	}
	if cfg.CheckInterval == 0 {
		cfg.CheckInterval = 10 * time.Second
	}
	if cfg.Patience == 0 {
		cfg.Patience = 10 * time.Second
	}
	return &Agent{
		cfg: cfg, groups: map[string]*subscription{}, wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), opened: make(chan struct{}),
		shared: attachments{byKey: map[string]attached{}, hints: map[string]hint{}},
	}, nil
}

// Run enforces policies until ctx ends. The rules stay, because pods outlive the agent.
func (a *Agent) Run(ctx context.Context) (err error) {
	defer a.kernel.Close()
	if a.policies, err = client.Open[*networkingv1.NetworkPolicy](ctx, a.cfg.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open network policies: %w", err)
	}
	close(a.opened)
	synced, done := a.policies.Subscribe(ctx, func(e client.TypedEvent[*networkingv1.NetworkPolicy]) {
		a.due.add(e.Object.Namespace, e.Object.Name, e.Revision)
		a.wakeUp()
	})
	a.ended = append(a.ended, done)
	defer func() {
		for _, d := range a.ended {
			<-d
		}
		a.follow(context.WithoutCancel(ctx), nil)
	}()
	select {
	case <-synced:
	case <-ctx.Done():
	}
	a.due.begin()
	// The first sync runs even without policies, to remove what an earlier agent left.
	a.enforces = true
	generations := nft.Generations{}
	defer generations.Close()
	seen := uint32(0)
	ticker := time.NewTicker(a.cfg.CheckInterval)
	defer ticker.Stop()
	a.wakeUp()
	first := true
	for {
		afresh := first
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-a.urgent:
		case <-ticker.C:
			now, err := generations.Now()
			if !a.enforces || (err == nil && now == seen) || a.kernel.intact() {
				seen = now
				continue
			}
			slog.Warn("another program changed the nftables rules of network policies; restoring them")
			afresh = true
		}
		if err := a.sync(ctx, afresh); err != nil {
			slog.Error("network policies could not be enforced; trying again", "error", err)
			a.pause(ctx, time.Second)
			a.wakeUp()
			continue
		}
		first = false
		a.pause(ctx, a.cfg.Debounce)
	}
}

func (a *Agent) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// sync plans and applies. Without policies it watches only policies.
func (a *Agent) sync(ctx context.Context, afresh bool) error {
	due := a.due.take()
	waiting, changed, err := a.syncAll(ctx, afresh)
	if err != nil {
		a.due.giveBack(due)
	} else {
		a.inKernel(due, changed)
	}
	a.settled(waiting, err)
	return err
}

// syncAll returns the channels of the attachments that the rules now contain, and whether it has
// changed the rules.
func (a *Agent) syncAll(ctx context.Context, afresh bool) (waiting []chan struct{}, changed bool, err error) {
	attached, waiting := a.current()
	policies := a.withHints(a.policies.List("", nil))
	if len(policies) == 0 && !a.enforces {
		return waiting, false, nil
	}
	if len(policies) > 0 && !a.watching {
		if err := a.watch(ctx); err != nil {
			return nil, false, err
		}
		attached, waiting = a.current() // with the pods that are shown now
	}
	p := inputs{node: a.cfg.NodeName, policies: policies, attached: attached}
	if a.watching {
		p.pods, p.namespaces = a.pods.List("", nil), a.namespaces.List("", nil)
	}
	p.published = a.published()
	want, needs := p.plan()
	if !a.cfg.AllPods && a.follow(ctx, needs) {
		a.await(ctx, afresh)
		p.published = a.published()
		want, _ = p.plan()
	}
	if !afresh && reflect.DeepEqual(want, a.have) {
		return waiting, false, nil
	}
	if err := a.kernel.apply(want, afresh); err != nil {
		return nil, false, err
	}
	a.have, a.enforces = want, len(policies) > 0
	return waiting, true, nil
}

// watch opens the Views of Pods and Namespaces once a policy exists.
func (a *Agent) watch(ctx context.Context) (err error) {
	if a.watching {
		return nil
	}
	if a.namespaces, err = client.Open[*corev1.Namespace](ctx, a.cfg.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open namespaces: %w", err)
	}
	pods, scope := a.cfg.Own, client.Scope{FieldSelector: "spec.nodeName=" + a.cfg.NodeName}
	if a.cfg.AllPods {
		pods, scope = a.cfg.Client, client.Scope{}
	}
	if a.pods, err = client.Open[*corev1.Pod](ctx, pods, scope); err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	_, done := a.namespaces.Subscribe(ctx, func(e client.TypedEvent[*corev1.Namespace]) {
		if e.Type != client.Modified || !maps.Equal(e.Old.Labels, e.Object.Labels) {
			a.wakeUp()
		}
	})
	a.ended = append(a.ended, done)
	_, done = a.pods.Subscribe(ctx, func(e client.TypedEvent[*corev1.Pod]) {
		if e.Type != client.Modified || !sameForPolicies(e.Old, e.Object) {
			a.wakeUp()
		}
	})
	a.ended = append(a.ended, done)
	a.watching = true
	return nil
}

func sameForPolicies(a, b *corev1.Pod) bool {
	return maps.Equal(a.Labels, b.Labels) && a.Spec.NodeName == b.Spec.NodeName && slices.Equal(peers.Addresses(a), peers.Addresses(b))
}
