package wasm

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// plugin is a guest as a plugin of the framework, at all extension points.
type plugin struct{ *Guest }

// normalizing is a plugin whose guest normalizes its scores.
type normalizing struct{ plugin }

// AddTo adds the guest to a profile, after the plugins that are there. weight counts at Score.
func (g *Guest) AddTo(profile *framework.Profile, weight int64) {
	if g.settings.Local {
		addTo(profile, local{plugin{g}}, localNormalizing{normalizing{plugin{g}}}, g, weight)
		return
	}
	addTo(profile, plugin{g}, normalizing{plugin{g}}, g, weight)
}

// every has the methods of a guest's plugin.
type every interface {
	framework.TrialPlugin
	framework.FilterPlugin
	framework.PostFilterPlugin
	framework.PreScorePlugin
	framework.ScorePlugin
	framework.ReservePlugin
	framework.PermitPlugin
	framework.PreBindPlugin
	framework.BindPlugin
	framework.PostBindPlugin
}

func addTo(profile *framework.Profile, p every, normalizing framework.NormalizePlugin, g *Guest, weight int64) {
	// Each cycle begins in PreFilter, even if the guest has no opinion there.
	profile.PreFilters = append(profile.PreFilters, p)
	if g.counts(filter) {
		profile.Filters = append(profile.Filters, p)
	}
	if g.counts(postFilter) {
		profile.PostFilters = append(profile.PostFilters, p)
	}
	if g.counts(preScore) {
		profile.PreScores = append(profile.PreScores, p)
	}
	switch {
	case g.counts(normalizeScore):
		profile.Scores = append(profile.Scores, framework.Weighted{ScorePlugin: normalizing, Weight: weight})
	case g.counts(score):
		profile.Scores = append(profile.Scores, framework.Weighted{ScorePlugin: p, Weight: weight})
	}
	// A guest without a part in the binding releases its instance there.
	if g.counts(reserve) || g.counts(unreserve) || !g.binding {
		profile.Reserves = append(profile.Reserves, p)
	}
	if g.counts(permit) {
		profile.Permits = append(profile.Permits, p)
	}
	if g.counts(preBind) {
		profile.PreBinds = append(profile.PreBinds, p)
	}
	if g.counts(bind) {
		profile.Binds = append([]framework.BindPlugin{p}, profile.Binds...)
	}
	if g.counts(postBind) {
		profile.PostBinds = append(profile.PostBinds, p)
	}
}

// Name implements framework.Plugin.
func (p plugin) Name() string { return p.settings.Name }

// RequeueOn implements framework.Requeuer.
func (p plugin) RequeueOn() framework.Events { return p.events }

// cycle returns the guest's part of a cycle. A cycle without PreFilter, as in tests, begins here.
func (p plugin) cycle(state framework.State, pod *corev1.Pod) *cycle {
	if c, ok := state[p.settings.Name].(*cycle); ok {
		return c
	}
	c := p.pool.begin(nil, pod)
	state[p.settings.Name] = c
	return c
}

// PreFilter implements framework.PreFilterPlugin.
func (p plugin) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	if old, ok := state[p.settings.Name].(*cycle); ok {
		old.End()
	}
	c := p.pool.begin(snapshot, pod.Pod)
	state[p.settings.Name] = c
	if !p.counts(preFilter) {
		return nil, nil
	}
	if p.settings.Local {
		return p.answers.of(p.appendKey(nil, pod.Pod), func() (sets.Set[string], *framework.Status) { return p.askPreFilter(c, snapshot) })
	}
	return p.askPreFilter(c, snapshot)
}

func (p plugin) askPreFilter(c *cycle, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	var only sets.Set[string]
	status := p.ask(c, &call{point: preFilter}, func(in *instance, result uint64) (*framework.Status, error) {
		if in.call.nodeNames == nil {
			return p.status(uint32(result), in, framework.Skip)
		}
		only = sets.New[string]()
		for _, name := range in.call.nodeNames {
			if _, ok := snapshot.Node(name); !ok {
				return nil, fmt.Errorf("it named the node %q, which does not exist", name)
			}
			only.Insert(name)
		}
		return p.status(uint32(result), in, framework.Skip)
	})
	if !status.OK() {
		only = nil
	}
	return only, status
}

// AddPod implements framework.TrialPlugin.
func (p plugin) AddPod(state framework.State, pod, added *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	return p.tell(addPod, state, pod, added, node)
}

// RemovePod implements framework.TrialPlugin.
func (p plugin) RemovePod(state framework.State, pod, removed *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	return p.tell(removePod, state, pod, removed, node)
}

// tell tells the guest of another pod on a node. A guest whose answers are kept sees no other pods.
func (p plugin) tell(point point, state framework.State, pod, other *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if !p.counts(point) || p.settings.Local {
		return nil
	}
	return p.ask(p.cycle(state, pod.Pod), &call{point: point, node: node.Name(), info: node, target: other.Pod}, p.plain)
}

// Filter implements framework.FilterPlugin.
func (p plugin) Filter(state framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	return p.ask(p.cycle(state, pod.Pod), &call{point: filter, node: node.Name(), info: node}, p.refusal)
}

// PostFilter implements framework.PostFilterPlugin.
func (p plugin) PostFilter(_ context.Context, state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot, refusals framework.Refusals) (string, *framework.Status) {
	nominated := ""
	status := p.ask(p.cycle(state, pod.Pod), &call{point: postFilter, refusals: refusals}, func(in *instance, result uint64) (*framework.Status, error) {
		const override = 1 // the mode that nominates; 0 changes nothing
		switch mode := uint32(result >> 32); mode {
		case 0:
		case override:
			nominated = in.call.nominated
		default:
			return nil, fmt.Errorf("it returned the nominating mode %d: 0 and 1 are allowed", mode)
		}
		if _, ok := snapshot.Node(nominated); nominated != "" && !ok {
			return nil, fmt.Errorf("it nominated the node %q, which does not exist", nominated)
		}
		return p.status(uint32(result), in)
	})
	if !status.OK() {
		nominated = ""
	}
	return nominated, status
}

// PreScore implements framework.PreScorePlugin.
func (p plugin) PreScore(state framework.State, pod *framework.PodInfo, _ *framework.Snapshot, nodes []*framework.NodeInfo) *framework.Status {
	return p.ask(p.cycle(state, pod.Pod), &call{point: preScore, filtered: nodes}, func(in *instance, result uint64) (*framework.Status, error) {
		return p.status(uint32(result), in, framework.Skip)
	})
}

// Score implements framework.ScorePlugin.
func (p plugin) Score(state framework.State, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	var points int64
	status := p.ask(p.cycle(state, pod.Pod), &call{point: score, node: node.Name(), info: node}, func(in *instance, result uint64) (*framework.Status, error) {
		points = int64(int32(result >> 32))
		if !p.has[normalizeScore] {
			if err := inRange(node.Name(), points); err != nil {
				return nil, err
			}
		}
		return p.status(uint32(result), in)
	})
	if !status.OK() {
		points = 0
	}
	return points, status
}

func inRange(node string, points int64) error {
	if points < 0 || points > framework.MaxNodeScore {
		return fmt.Errorf("it gave node %s the score %d: 0 to %d are allowed", node, points, framework.MaxNodeScore)
	}
	return nil
}

// Normalize implements framework.NormalizePlugin. After a failure all nodes get 0, whatever the
// failure policy says: the framework has no status here.
func (p normalizing) Normalize(state framework.State, pod *framework.PodInfo, nodes []*framework.NodeInfo, scores []int64) {
	out := make([]int64, len(scores))
	status := p.ask(p.cycle(state, pod.Pod), &call{point: normalizeScore, filtered: nodes, raw: scores}, func(in *instance, result uint64) (*framework.Status, error) {
		status, err := p.status(uint32(result), in)
		if err != nil || !status.OK() {
			return status, err
		}
		if len(in.call.normalized) != len(nodes) {
			return nil, fmt.Errorf("it normalized the scores of %d nodes: there are %d", len(in.call.normalized), len(nodes))
		}
		for i, n := range nodes {
			points, ok := in.call.normalized[n.Name()]
			if !ok {
				return nil, fmt.Errorf("it normalized no score of node %s", n.Name())
			}
			if err := inRange(n.Name(), points); err != nil {
				return nil, err
			}
			out[i] = points
		}
		return nil, nil
	})
	if !status.OK() {
		clear(out)
	}
	copy(scores, out)
}

// Reserve implements framework.ReservePlugin.
func (p plugin) Reserve(_ context.Context, state framework.State, pod *corev1.Pod, node string) *framework.Status {
	if !p.binding {
		p.cycle(state, pod).release() // the binding may take long, and has no call of the guest
	}
	if !p.counts(reserve) {
		return nil
	}
	return p.ask(p.cycle(state, pod), &call{point: reserve, node: node}, p.plain)
}

// Unreserve implements framework.ReservePlugin.
func (p plugin) Unreserve(_ context.Context, state framework.State, pod *corev1.Pod, node string) {
	if p.has[unreserve] {
		p.ask(p.cycle(state, pod), &call{point: unreserve, node: node}, p.silent)
	}
}

// Permit implements framework.PermitPlugin.
func (p plugin) Permit(_ context.Context, state framework.State, pod *corev1.Pod, node string) (*framework.Status, time.Duration) {
	var wait time.Duration
	status := p.ask(p.cycle(state, pod), &call{point: permit, node: node}, func(in *instance, result uint64) (*framework.Status, error) {
		wait = time.Duration(uint32(result)) * time.Millisecond
		return p.status(uint32(result>>32), in, framework.Wait)
	})
	return status, wait
}

// PreBind implements framework.PreBindPlugin.
func (p plugin) PreBind(_ context.Context, state framework.State, pod *corev1.Pod, node string) *framework.Status {
	return p.ask(p.cycle(state, pod), &call{point: preBind, node: node}, p.plain)
}

// PreBindPreFlight implements framework.PreBindPlugin. The ABI has no question for it.
func (p plugin) PreBindPreFlight(framework.State, *corev1.Pod, string) bool { return true }

// Bind implements framework.BindPlugin. A guest has no means to write the binding, so its success
// leaves it to the next plugin, as Skip does.
func (p plugin) Bind(_ context.Context, state framework.State, pod *corev1.Pod, node string) *framework.Status {
	status := p.ask(p.cycle(state, pod), &call{point: bind, node: node}, func(in *instance, result uint64) (*framework.Status, error) {
		return p.status(uint32(result), in, framework.Skip)
	})
	if status.OK() {
		return &framework.Status{Code: framework.Skip, Plugin: p.settings.Name}
	}
	return status
}

// PostBind implements framework.PostBindPlugin.
func (p plugin) PostBind(_ context.Context, state framework.State, pod *corev1.Pod, node string) {
	p.ask(p.cycle(state, pod), &call{point: postBind, node: node}, p.silent)
}
