package node

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
)

// conditionTaint maps a condition with a status to a taint.
type conditionTaint struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	key       string
}

var conditionTaints = []conditionTaint{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
}

// noScheduleTaints returns the keys of the NoSchedule taints, among those this controller owns,
// that the node should have.
func noScheduleTaints(node *corev1.Node) (want map[string]bool) {
	want = map[string]bool{}
	for _, t := range conditionTaints {
		if c := condition(node, t.condition); c != nil && c.Status == t.status {
			want[t.key] = true
		}
	}
	if node.Spec.Unschedulable {
		want[corev1.TaintNodeUnschedulable] = true
	}
	return want
}

func oursNoSchedule(key string) bool {
	return key == corev1.TaintNodeUnschedulable || slices.ContainsFunc(conditionTaints, func(t conditionTaint) bool { return t.key == key })
}

// evictionTaint returns the key of the NoExecute taint that the node's readiness demands, or "".
func evictionTaint(node *corev1.Node) string {
	ready := condition(node, corev1.NodeReady)
	switch {
	case ready == nil:
		return ""
	case ready.Status == corev1.ConditionFalse:
		return corev1.TaintNodeNotReady
	case ready.Status == corev1.ConditionUnknown:
		return corev1.TaintNodeUnreachable
	}
	return ""
}

func oursNoExecute(t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

// taint brings the node's taints in line with its conditions. wait is the time until its zone
// allows an eviction.
func (c *lifecycle) taint(ctx context.Context, node *corev1.Node) (wait time.Duration, err error) {
	want := noScheduleTaints(node)
	evict := evictionTaint(node)
	evicted := slices.ContainsFunc(node.Spec.Taints, oursNoExecute)
	if evict != "" && !evicted {
		if rest, ok := c.mayEvict(node); !ok {
			evict, wait = "", rest
		}
	}
	if c.allDown {
		evict = ""
	}
	var taints []corev1.Taint
	changed := false
	for _, t := range node.Spec.Taints {
		keep := true
		switch {
		case t.Effect == corev1.TaintEffectNoSchedule && oursNoSchedule(t.Key):
			keep = want[t.Key]
			delete(want, t.Key)
		case oursNoExecute(t):
			keep = t.Key == evict
			if keep {
				evict = ""
			}
		}
		if keep {
			taints = append(taints, t)
		}
		changed = changed || !keep
	}
	now := metav1.NewTime(c.now())
	for _, t := range conditionTaints { // the order is stable
		if want[t.key] {
			taints = append(taints, corev1.Taint{Key: t.key, Effect: corev1.TaintEffectNoSchedule})
			changed = true
		}
	}
	if want[corev1.TaintNodeUnschedulable] {
		taints = append(taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		changed = true
	}
	if evict != "" {
		taints = append(taints, corev1.Taint{Key: evict, Effect: corev1.TaintEffectNoExecute, TimeAdded: &now})
		changed = true
	}
	if !changed {
		return wait, nil
	}
	if err := c.writeTaints(ctx, node, taints); err != nil {
		return wait, err
	}
	if evict != "" && !evicted {
		c.metrics.evictions.WithLabelValues(zoneLabelOf(node)).Inc()
	}
	return wait, nil
}

func (c *lifecycle) writeTaints(ctx context.Context, node *corev1.Node, taints []corev1.Taint) error {
	if taints == nil {
		taints = []corev1.Taint{}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": taints},
	})
	if err != nil {
		return err
	}
	_, err = client.Patch[*corev1.Node](ctx, c.env.Client, "", node.Name, types.StrategicMergePatchType, patch)
	return err
}

// zoneID identifies a zone.
type zoneID struct{ region, zone string }

func zoneOf(node *corev1.Node) zoneID {
	return zoneID{node.Labels[corev1.LabelTopologyRegion], node.Labels[corev1.LabelTopologyZone]}
}

// mayEvict takes the zone's next turn of eviction for the node. If that is not allowed now, wait is
// the time until the next try; 0 means until something changes.
func (c *lifecycle) mayEvict(node *corev1.Node) (wait time.Duration, ok bool) {
	z := c.zones[zoneOf(node)]
	if c.allDown || z == nil {
		return 0, false
	}
	every := evictionEvery
	if z.state == zonePartlyDisrupted {
		if z.nodes <= largeZone {
			return 0, false
		}
		every = slowEviction
	}
	now := c.now()
	if rest := z.evictAt.Sub(now); rest > 0 {
		return rest, false
	}
	z.evictAt = now.Add(every)
	return 0, true
}

// share is the contribution of a node to its zone's tally.
type share struct {
	zone        zoneID
	ready, down int   // both 0 if the node never reported readiness
	revision    int64 // resourceVersion of the node
}

func shareOf(node *corev1.Node) share {
	s := share{zone: zoneOf(node)}
	// The API server writes numbers only.
	s.revision, _ = strconv.ParseInt(node.ResourceVersion, 10, 64)
	if ready := condition(node, corev1.NodeReady); ready != nil && ready.Status == corev1.ConditionTrue {
		s.ready = 1
	} else if ready != nil {
		s.down = 1
	}
	return s
}

// tally is the sum of a zone's shares.
type tally struct{ nodes, ready, down int }

// count updates the tallies for a node; nil means that it is gone. Recounting all nodes after each
// change would cost a large cluster more than everything else here.
func (c *lifecycle) count(name string, node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countLocked(name, node)
}

// recount updates the tallies after a worker's write, unless the node is gone or a later version
// has been counted.
func (c *lifecycle) recount(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if counted, ok := c.shares[node.Name]; ok && counted.revision < shareOf(node).revision {
		c.countLocked(node.Name, node)
	}
}

// countLocked is count with mu held.
func (c *lifecycle) countLocked(name string, node *corev1.Node) {
	if was, ok := c.shares[name]; ok {
		c.add(was, -1)
		delete(c.shares, name)
	}
	if node != nil {
		is := shareOf(node)
		c.shares[name] = is
		c.add(is, 1)
	}
}

func (c *lifecycle) add(s share, n int) {
	t := c.tallies[s.zone]
	t = tally{t.nodes + n, t.ready + n*s.ready, t.down + n*s.down}
	if c.tallies[s.zone] = t; t.nodes == 0 {
		delete(c.tallies, s.zone)
	}
}

func (t tally) state() zoneState {
	switch {
	case t.ready == 0 && t.down > 0:
		return zoneFullyDisrupted
	case t.down > 2 && float64(t.down)/float64(t.down+t.ready) >= disruptedShare:
		return zonePartlyDisrupted
	}
	return zoneNormal
}

// judgeZones updates the state of the zones. While all zones are down, no node is evicted. When one
// comes back, every node gets its whole grace period again.
func (c *lifecycle) judgeZones(ctx context.Context) error {
	c.mu.Lock()
	tallies := maps.Clone(c.tallies)
	c.mu.Unlock()
	c.metrics.showZones(tallies, c.told)
	c.told = tallies
	for id := range c.zones {
		if _, ok := tallies[id]; !ok {
			delete(c.zones, id)
		}
	}
	allDown := len(tallies) > 0
	for id, t := range tallies {
		z := c.zones[id]
		if z == nil {
			z = &zone{}
			c.zones[id] = z
		}
		z.state, z.nodes = t.state(), t.ready+t.down
		allDown = allDown && z.state == zoneFullyDisrupted
	}
	if allDown == c.allDown {
		return nil
	}
	c.allDown = allDown
	if !allDown {
		c.mu.Lock()
		for name := range c.heartbeats {
			c.heartbeats[name] = c.now()
		}
		c.mu.Unlock()
	}
	for _, n := range c.nodes.List("", nil) {
		if _, err := c.taint(ctx, n); err != nil {
			return ignoreNotFound(err)
		}
	}
	return nil
}
