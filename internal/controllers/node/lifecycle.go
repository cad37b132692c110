package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Lifecycle detects dead nodes: a node that is silent for the grace period becomes Unknown. It
// turns conditions of nodes into taints, which keep new pods away (NoSchedule) or evict pods
// (NoExecute, see TaintEviction). Evictions are limited per zone. They stop if all nodes of all
// zones seem dead, since then it is rather this process that is cut off.
func Lifecycle(m *Metrics) controller.Starter {
	return controller.Starter{
		Name: "node-lifecycle-controller", Account: "node-controller", EventSource: "node-controller",
		Run: func(ctx context.Context, env controller.Env) error { return runLifecycle(ctx, env, m) },
	}
}

const (
	defaultGrace  = 40 * time.Second
	startupGrace  = time.Minute      // for a node that never posted a status
	evictionEvery = 10 * time.Second // between two nodes of a zone
	// A disrupted zone with more nodes than this is evicted slowly; a smaller one is not.
	largeZone      = 50
	slowEviction   = 100 * time.Second
	disruptedShare = 0.55
)

// zoneState tells how many of a zone's nodes are dead.
type zoneState int

const (
	zoneNormal zoneState = iota
	zonePartlyDisrupted
	zoneFullyDisrupted
)

type lifecycle struct {
	metrics *Metrics
	env     controller.Env
	nodes   client.ViewOf[*corev1.Node]
	pods    client.ViewOf[*corev1.Pod]
	grace   time.Duration
	now     func() time.Time

	mu sync.Mutex
	// Last sign of life by our clock, since clocks of nodes are not trusted.
	heartbeats map[string]time.Time
	shares     map[string]share // by node
	tallies    map[zoneID]tally // by zone

	// The only worker owns the fields below.
	zones      map[zoneID]*zone
	told       map[zoneID]tally // the tallies that the metrics show
	allDown    bool
	registered map[string]bool
}

// zone is the eviction state of a zone.
type zone struct {
	state   zoneState
	nodes   int
	evictAt time.Time // earliest time of the next node's eviction
}

func runLifecycle(ctx context.Context, env controller.Env, m *Metrics) error {
	nodes, err := client.Open[*corev1.Node](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open nodes: %w", err)
	}
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	leases, err := client.Open[*coordinationv1.Lease](ctx, env.Client, client.Scope{Namespace: corev1.NamespaceNodeLease})
	if err != nil {
		return fmt.Errorf("open leases: %w", err)
	}
	controller.IndexPodsByNode(pods)
	c := &lifecycle{metrics: m, env: env, nodes: nodes, pods: pods, grace: env.Config.NodeMonitorGrace, now: time.Now,
		heartbeats: map[string]time.Time{}, shares: map[string]share{}, tallies: map[zoneID]tally{}, zones: map[zoneID]*zone{}, registered: map[string]bool{}}
	if c.grace == 0 {
		c.grace = defaultGrace
	}
	loop := controller.Loop{
		Log:    env.Log,
		Queues: env.Queues,
		Name:   "node-lifecycle-controller",
		Inputs: []controller.Input{
			controller.On(nodes, c.nodeKeys),
			controller.On(leases, func(e client.TypedEvent[*coordinationv1.Lease]) []controller.Key {
				if e.Type != client.Deleted && (e.Type == client.Added || !e.Old.Spec.RenewTime.Equal(e.Object.Spec.RenewTime)) {
					c.recordHeartbeat(e.Object.Name)
				}
				return nil // a sign of life alone needs no work
			}),
			controller.On(pods, func(e client.TypedEvent[*corev1.Pod]) []controller.Key {
				if e.Type == client.Deleted || e.Object.Spec.NodeName == "" || (e.Type == client.Modified && e.Old.Spec.NodeName == e.Object.Spec.NodeName) {
					return nil
				}
				if n, ok := nodes.Get("", e.Object.Spec.NodeName); !ok || nodeReady(n) {
					return nil
				}
				return []controller.Key{{Name: e.Object.Spec.NodeName}}
			}),
		},
		Reconcile: c.reconcile, // one worker, which owns the zones
	}
	return loop.Run(ctx)
}

func (c *lifecycle) recordHeartbeat(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heartbeats[node] = c.now()
}

func (c *lifecycle) lastHeartbeat(node string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.heartbeats[node]
	if !ok {
		at = c.now()
		c.heartbeats[node] = at
	}
	return at
}

// nodeKeys records a status posted by the kubelet as a sign of life. It queues the node only if a
// field changed that matters here.
func (c *lifecycle) nodeKeys(e client.TypedEvent[*corev1.Node]) []controller.Key {
	key := []controller.Key{{Name: e.Object.Name}}
	if e.Type == client.Deleted {
		c.count(e.Object.Name, nil)
		return key
	}
	if c.count(e.Object.Name, e.Object); e.Type == client.Added {
		return key
	}
	was, is := condition(e.Old, corev1.NodeReady), condition(e.Object, corev1.NodeReady)
	if is != nil && is.Status != corev1.ConditionUnknown && (was == nil || !was.LastHeartbeatTime.Equal(&is.LastHeartbeatTime) || was.Status != is.Status) {
		c.recordHeartbeat(e.Object.Name)
	}
	if equality.Semantic.DeepEqual(e.Old.Spec, e.Object.Spec) && equality.Semantic.DeepEqual(e.Old.Labels, e.Object.Labels) && sameConditions(e.Old, e.Object) {
		return nil
	}
	return key
}

func sameConditions(a, b *corev1.Node) bool {
	return slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(x, y corev1.NodeCondition) bool { return x.Type == y.Type && x.Status == y.Status })
}

func (c *lifecycle) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	node, ok := c.nodes.Get("", key.Name)
	if !ok {
		c.mu.Lock()
		delete(c.heartbeats, key.Name)
		c.mu.Unlock()
		if c.registered[key.Name] {
			delete(c.registered, key.Name)
			c.event(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}, "RemovingNode", "Node %s event: Removing Node %s from Controller", key.Name, key.Name)
		}
		return controller.Result{}, c.judgeZones(ctx)
	}
	if !c.registered[key.Name] {
		c.registered[key.Name] = true
		c.event(node, "RegisteredNode", "Node %s event: Registered Node %s in Controller", key.Name, key.Name)
	}
	node, wait, err := c.checkHeartbeat(ctx, node)
	if err != nil {
		return controller.Result{}, ignoreNotFound(err)
	}
	if err := c.judgeZones(ctx); err != nil {
		return controller.Result{}, err
	}
	if !nodeReady(node) {
		if err := c.markPodsNotReady(ctx, node); err != nil {
			return controller.Result{}, err
		}
	}
	evictWait, err := c.taint(ctx, node)
	if err != nil {
		return controller.Result{}, ignoreNotFound(err)
	}
	if evictWait > 0 && (wait == 0 || evictWait < wait) {
		wait = evictWait
	}
	return controller.Result{After: wait}, nil
}

func (c *lifecycle) event(node *corev1.Node, reason, note string, args ...any) {
	c.env.Events.Eventf(node, nil, corev1.EventTypeNormal, reason, reason, note, args...)
}

// checkHeartbeat sets the conditions of a node to Unknown if it has been silent too long. wait is
// the time until that happens.
func (c *lifecycle) checkHeartbeat(ctx context.Context, node *corev1.Node) (_ *corev1.Node, wait time.Duration, err error) {
	now := c.now()
	ready := condition(node, corev1.NodeReady)
	at, grace := c.lastHeartbeat(node.Name), c.grace
	if ready == nil {
		at, grace = node.CreationTimestamp.Time, startupGrace
	}
	if rest := at.Add(grace).Sub(now); rest > 0 {
		return node, rest, nil
	}
	changed := node.DeepCopy()
	for _, t := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		have := condition(changed, t)
		switch {
		case have == nil:
			changed.Status.Conditions = append(changed.Status.Conditions, corev1.NodeCondition{
				Type: t, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: metav1.NewTime(now)})
		case have.Status != corev1.ConditionUnknown:
			have.Status, have.Reason, have.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
			have.LastTransitionTime = metav1.NewTime(now)
		}
	}
	if equality.Semantic.DeepEqual(node.Status, changed.Status) {
		// Already Unknown; a sign of life changes the status and queues the node.
		return node, 0, nil
	}
	updated, err := client.UpdateStatus(ctx, c.env.Client, changed)
	if err != nil {
		return nil, 0, fmt.Errorf("mark silent node %s as unknown: %w", node.Name, err)
	}
	c.recount(updated)
	// No Event for a node that was never ready.
	if ready != nil && ready.Status == corev1.ConditionTrue {
		c.event(updated, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
	}
	return updated, 0, nil
}

// markPodsNotReady removes the pods of a node that is not ready from Services, since its kubelet
// may be unable to.
func (c *lifecycle) markPodsNotReady(ctx context.Context, node *corev1.Node) error {
	for _, p := range controller.PodsOnNode(c.pods, node.Name) {
		ready := controller.PodCondition(p, corev1.PodReady)
		if ready == nil || ready.Status != corev1.ConditionTrue {
			continue
		}
		err := patchPodCondition(ctx, c.env.Client, p, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(c.now()), ObservedGeneration: ready.ObservedGeneration})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("mark pod %s/%s not ready: %w", p.Namespace, p.Name, err)
		}
		c.env.Events.Eventf(p, nil, corev1.EventTypeWarning, "NodeNotReady", "NodeNotReady", "Node is not ready")
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
