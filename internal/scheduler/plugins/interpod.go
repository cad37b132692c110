package plugins

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// interPodAffinity keeps pods near to or away from others. Anti-affinity works both ways: a pod is
// also refused where an existing pod's anti-affinity excludes it. The snapshot counts the pods.
type interPodAffinity struct {
	plugin
	// hardWeight counts for existing pods that require the incoming one nearby.
	hardWeight int64
	// ignoreExisting ignores preferred terms of existing pods for pods without such terms.
	ignoreExisting bool
}

var (
	notNear    = refusal("InterPodAffinity", framework.UnschedulableAndUnresolvable, "node(s) didn't match pod affinity rules")
	notAway    = refusal("InterPodAffinity", framework.Unschedulable, "node(s) didn't match pod anti-affinity rules")
	notWelcome = refusal("InterPodAffinity", framework.Unschedulable, "node(s) didn't satisfy existing pods anti-affinity rules")
)

type affinityState struct {
	// near counts the pods that match all terms of the required affinity, one byKey for each term.
	near framework.Counts
	// away counts the pods that match a term of the required anti-affinity. excluding counts the
	// pods whose anti-affinity excludes the incoming pod.
	away, excluding []framework.TopologyCount
	// first means that no pod matches the affinity but the pod itself: a group can start.
	first bool
}

func (interPodAffinity) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	if pod.Invalid != nil {
		return nil, framework.RefuseAlways(pod.Invalid.Error())
	}
	s := &affinityState{excluding: snapshot.TermsAbout(framework.RequiredAntiAffinity, pod)}
	if len(pod.RequiredAffinity)+len(pod.RequiredAntiAffinity)+len(s.excluding) == 0 {
		return nil, skip
	}
	if len(pod.RequiredAffinity) > 0 {
		s.near = countPods(snapshot, pod.RequiredAffinity)
		s.first = s.near.Total == 0 && matchesAll(pod.RequiredAffinity, pod, namespaceLabels(snapshot.NamespaceLabels, pod.Pod.Namespace))
	}
	for i := range pod.RequiredAntiAffinity {
		s.away = append(s.away, countPods(snapshot, pod.RequiredAntiAffinity[i:i+1]).ByKey[0])
	}
	state["InterPodAffinity"] = s
	return nil, nil
}

// countPods counts the pods that match all the terms, by the topology key of each.
func countPods(snapshot *framework.Snapshot, terms []framework.Term) framework.Counts {
	labelsOf := snapshot.NamespaceLabels // the selection is kept: it must not hold the snapshot
	sel := framework.Selection{
		ID: terms[0].ID, Keys: make([]string, len(terms)),
		Matches: func(other *framework.PodInfo) bool {
			return matchesAll(terms, other, namespaceLabels(labelsOf, other.Pod.Namespace))
		},
	}
	for i := range terms {
		sel.Keys[i] = terms[i].TopologyKey
		sel.ByNamespace = sel.ByNamespace || terms[i].NamespaceSelector != nil
	}
	if len(terms) > 1 {
		ids := make([]string, len(terms))
		for i := range terms {
			ids[i] = terms[i].ID
		}
		sel.ID = strings.Join(ids, "&")
	}
	return snapshot.Count(sel)
}

func matchesAll(terms []framework.Term, other *framework.PodInfo, namespace labels.Set) bool {
	for i := range terms {
		if !terms[i].Matches(other.Pod.Namespace, other.Pod.Labels, namespace) {
			return false
		}
	}
	return true
}

func namespaceLabels(of func(string) labels.Set, namespace string) labels.Set {
	if of == nil {
		return nil
	}
	return of(namespace)
}

func (interPodAffinity) Filter(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	s, ok := state["InterPodAffinity"].(*affinityState)
	if !ok {
		return nil
	}
	if !s.isNear(node) {
		return notNear
	}
	if anyOn(s.away, node) {
		return notAway
	}
	if anyOn(s.excluding, node) {
		return notWelcome
	}
	return nil
}

// isNear checks the required affinity. The node needs every topology key, and matching pods in each
// domain.
func (s *affinityState) isNear(node *framework.NodeInfo) bool {
	found := true
	for i := range s.near.ByKey {
		n, ok := s.near.ByKey[i].On(node)
		if !ok {
			return false
		}
		found = found && n > 0
	}
	return found || s.first
}

// anyOn reports whether there are pods in a domain of the node.
func anyOn(counts []framework.TopologyCount, node *framework.NodeInfo) bool {
	for i := range counts {
		if n, ok := counts[i].On(node); ok && n > 0 {
			return true
		}
	}
	return false
}

func (interPodAffinity) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeLabels | framework.PodAssigned | framework.PodRemoved | framework.SelfChanged
}

// preference scores a node's domain.
type preference struct {
	framework.TopologyCount
	weight int64
}

func (p interPodAffinity) PreScore(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot, _ []*framework.NodeInfo) *framework.Status {
	if p.ignoreExisting && len(pod.PreferredAffinity)+len(pod.PreferredAntiAffinity) == 0 {
		return &framework.Status{Code: framework.Skip}
	}
	var prefer []preference
	existing := func(kind framework.TermKind, weight int64) {
		for _, t := range snapshot.TermsAbout(kind, pod) {
			prefer = append(prefer, preference{t, weight})
		}
	}
	existing(framework.PreferredAffinity, 1)
	existing(framework.PreferredAntiAffinity, -1)
	if p.hardWeight > 0 {
		existing(framework.RequiredAffinity, p.hardWeight)
	}
	own := func(terms []framework.Term, sign int64) {
		for i := range terms {
			if c := countPods(snapshot, terms[i:i+1]); c.Total > 0 {
				prefer = append(prefer, preference{c.ByKey[0], sign * terms[i].Weight})
			}
		}
	}
	own(pod.PreferredAffinity, 1)
	own(pod.PreferredAntiAffinity, -1)
	if len(prefer) == 0 {
		return skip
	}
	state["InterPodAffinity/score"] = prefer
	return nil
}

func (interPodAffinity) Score(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	prefer, _ := state["InterPodAffinity/score"].([]preference)
	var sum int64
	for i := range prefer {
		n, _ := prefer[i].On(node)
		sum += n * prefer[i].weight
	}
	return sum, nil
}

func (interPodAffinity) Normalize(_ framework.State, _ *framework.PodInfo, _ []*framework.NodeInfo, scores []int64) {
	least, most := slices.Min(scores), slices.Max(scores)
	for i, s := range scores {
		scores[i] = 0
		if most > least { // in upstream's floating point arithmetic
			scores[i] = int64(float64(framework.MaxNodeScore) * (float64(s-least) / float64(most-least)))
		}
	}
}
