package scheduler

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/extender"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Extension lets processes outside take part in a decision. Its answers are inputs of the decision
// like the snapshot.
type Extension interface {
	// Filter returns those of the feasible nodes that the extenders accept, and the refusals of the
	// others.
	Filter(pod *framework.PodInfo, feasible []*framework.NodeInfo) ([]*framework.NodeInfo, map[string]*framework.Status, error)
	// Scores returns scores to add, by node.
	Scores(pod *framework.PodInfo, feasible []*framework.NodeInfo) map[string]int64
}

// extend asks the extenders about the feasible nodes, and returns the accepted ones.
func (s *search) extend(feasible []int32) []int32 {
	if s.in.Extension == nil || s.d.Err != nil || len(feasible) == 0 {
		return feasible
	}
	accepted, refusals, err := s.in.Extension.Filter(s.in.Pod, s.nodesAt(feasible, make([]*framework.NodeInfo, len(feasible))))
	if err != nil {
		s.d.Err = err
		return nil
	}
	for node, status := range refusals {
		if i, ok := s.in.Snapshot.IndexOf(node); ok {
			s.d.Refusals.add(i, status)
		}
	}
	left := make([]int32, 0, len(accepted))
	for _, n := range accepted {
		if i, ok := s.in.Snapshot.IndexOf(n.Name()); ok {
			left = append(left, int32(i))
		}
	}
	return left
}

// nodesAt fills nodes with the nodes that have these indexes.
func (s *search) nodesAt(indexes []int32, nodes []*framework.NodeInfo) []*framework.NodeInfo {
	for i, at := range indexes {
		nodes[i] = s.in.Snapshot.Nodes.At(int(at))
	}
	return nodes
}

// addScores adds the scores of the extenders to the sums of the plugins.
func (in *Input) addScores(feasible []*framework.NodeInfo, total []int64) {
	if in.Extension == nil {
		return
	}
	scores := in.Extension.Scores(in.Pod, feasible)
	for i, n := range feasible {
		total[i] += scores[n.Name()]
	}
}

// extension asks the configured extenders during one decision.
type extension struct {
	s   *Scheduler
	ctx context.Context // of the decision
}

func (s *Scheduler) extension(ctx context.Context) Extension {
	if len(s.extenders) == 0 {
		return nil
	}
	return extension{s, ctx}
}

// Filter asks one extender after the other, each about the nodes that the earlier ones accept.
func (x extension) Filter(pod *framework.PodInfo, feasible []*framework.NodeInfo) ([]*framework.NodeInfo, map[string]*framework.Status, error) {
	all := map[string]*framework.Status{}
	for _, e := range x.s.extenders {
		if len(feasible) == 0 {
			break
		}
		if !e.Interested(pod.Pod) {
			continue
		}
		accepted, refusals, err := e.Filter(x.ctx, pod.Pod, feasible)
		switch {
		case err != nil && e.Ignorable():
			x.s.log.Info("going on without an extender", "error", err)
			continue
		case err != nil:
			return nil, nil, err
		}
		for node, status := range refusals {
			all[node] = status
		}
		feasible = accepted
	}
	return feasible, all, nil
}

// Scores asks all extenders at once. An extender that fails gives no scores.
func (x extension) Scores(pod *framework.PodInfo, feasible []*framework.NodeInfo) map[string]int64 {
	answers := make(chan map[string]int64)
	asked := 0
	for _, e := range x.s.extenders {
		if !e.Interested(pod.Pod) {
			continue
		}
		asked++
		go func() {
			defer x.s.metrics.working("prioritizing_extender")()
			scores, err := e.Prioritize(x.ctx, pod.Pod, feasible)
			if err != nil {
				x.s.log.Info("an extender gives no scores", "error", err)
			}
			answers <- scores
		}()
	}
	sum := map[string]int64{}
	for range asked {
		for node, score := range <-answers {
			sum[node] += score
		}
	}
	return sum
}

// binderOf returns the extender that binds the pod; nil leaves it to the plugins.
func (s *Scheduler) binderOf(pod *corev1.Pod) *extender.Extender {
	i := slices.IndexFunc(s.extenders, func(e *extender.Extender) bool { return e.Binds() && e.Interested(pod) })
	if i < 0 {
		return nil
	}
	return s.extenders[i]
}

// askAboutVictims lets the extenders change the candidates of a preemption.
func (s *Scheduler) askAboutVictims(ctx context.Context, pod *framework.PodInfo, snapshot *framework.Snapshot, candidates []*victims) ([]*victims, error) {
	if len(candidates) == 0 || !slices.ContainsFunc(s.extenders, func(e *extender.Extender) bool { return e.Preempts() }) {
		return candidates, nil
	}
	byNode := map[string]extender.Victims{}
	for _, v := range candidates {
		byNode[v.node] = extender.Victims{Pods: v.pods, Violations: v.violations}
	}
	find := func(node, uid string) (*corev1.Pod, bool) {
		n, ok := snapshot.Node(node)
		if !ok {
			return nil, false
		}
		i := slices.IndexFunc(n.Pods, func(p *framework.PodInfo) bool { return string(p.Pod.UID) == uid })
		if i < 0 {
			return nil, false
		}
		return n.Pods[i].Pod, true
	}
	for _, e := range s.extenders {
		if !e.Preempts() || !e.Interested(pod.Pod) || len(byNode) == 0 {
			continue
		}
		changed, err := e.Preempt(ctx, pod.Pod, byNode, find)
		switch {
		case err == nil:
			byNode = changed
		case e.Ignorable():
			s.log.Info("going on without an extender", "error", err)
		default:
			return nil, err
		}
	}
	var out []*victims
	for _, n := range snapshot.Nodes.All() { // a fixed order
		if v, ok := byNode[n.Name()]; ok {
			slices.SortStableFunc(v.Pods, moreImportant)
			out = append(out, &victims{node: n.Name(), pods: v.Pods, violations: v.Violations})
		}
	}
	return out, nil
}
