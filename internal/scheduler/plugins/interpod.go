package plugins

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// interPodAffinity keeps pods near to or away from others. Anti-affinity works both ways: a pod is
// also refused where an existing pod's anti-affinity excludes it.
type interPodAffinity struct{ plugin }

// domain is one value of a topology key.
type domain struct{ key, value string }

type affinityState struct {
	// affinity and anti count the pods that match the incoming pod's terms, by domain. existing
	// counts the pods whose anti-affinity excludes the incoming pod.
	affinity, anti, existing map[domain]int
	// selfMatch means that the pod matches its own affinity terms; then the first pod of a group
	// can start.
	selfMatch bool
}

func (interPodAffinity) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	if pod.Invalid != nil {
		return nil, framework.RefuseAlways(pod.Invalid.Error())
	}
	s := &affinityState{affinity: map[domain]int{}, anti: map[domain]int{}, existing: map[domain]int{}}
	podNamespace := namespaceLabels(snapshot, pod.Pod.Namespace)
	for _, node := range snapshot.NodesWithAntiAffinity() {
		for _, other := range node.WithAntiAffinity {
			for i := range other.RequiredAntiAffinity {
				term := &other.RequiredAntiAffinity[i]
				if value, ok := node.Node.Labels[term.TopologyKey]; ok && term.Matches(pod.Pod.Namespace, pod.Pod.Labels, podNamespace) {
					s.existing[domain{term.TopologyKey, value}]++
				}
			}
		}
	}
	if len(pod.RequiredAffinity)+len(pod.RequiredAntiAffinity) > 0 {
		s.count(pod, snapshot)
		s.selfMatch = matchesAll(pod.RequiredAffinity, pod, podNamespace)
	} else if len(s.existing) == 0 {
		return nil, &framework.Status{Code: framework.Skip}
	}
	state["InterPodAffinity"] = s
	return nil, nil
}

func (s *affinityState) count(pod *framework.PodInfo, snapshot *framework.Snapshot) {
	for _, node := range snapshot.Nodes {
		for _, other := range node.Pods {
			if other.Pod.DeletionTimestamp != nil && other.Pod.UID == pod.Pod.UID {
				continue
			}
			ns := namespaceLabels(snapshot, other.Pod.Namespace)
			// A pod counts for affinity only if it matches all the terms.
			if len(pod.RequiredAffinity) > 0 && matchesAll(pod.RequiredAffinity, other, ns) {
				for i := range pod.RequiredAffinity {
					key := pod.RequiredAffinity[i].TopologyKey
					if value, ok := node.Node.Labels[key]; ok {
						s.affinity[domain{key, value}]++
					}
				}
			}
			for i := range pod.RequiredAntiAffinity {
				term := &pod.RequiredAntiAffinity[i]
				if value, ok := node.Node.Labels[term.TopologyKey]; ok && term.Matches(other.Pod.Namespace, other.Pod.Labels, ns) {
					s.anti[domain{term.TopologyKey, value}]++
				}
			}
		}
	}
}

func matchesAll(terms []framework.Term, other *framework.PodInfo, namespace labels.Set) bool {
	for i := range terms {
		if !terms[i].Matches(other.Pod.Namespace, other.Pod.Labels, namespace) {
			return false
		}
	}
	return true
}

func namespaceLabels(snapshot *framework.Snapshot, namespace string) labels.Set {
	if snapshot.NamespaceLabels == nil {
		return nil
	}
	return snapshot.NamespaceLabels(namespace)
}

func (interPodAffinity) Filter(state framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	s, ok := state["InterPodAffinity"].(*affinityState)
	if !ok {
		return nil
	}
	for key, value := range node.Node.Labels {
		if s.existing[domain{key, value}] > 0 {
			return framework.Refuse("node(s) didn't satisfy existing pods anti-affinity rules")
		}
	}
	for i := range pod.RequiredAntiAffinity {
		key := pod.RequiredAntiAffinity[i].TopologyKey
		if value, ok := node.Node.Labels[key]; ok && s.anti[domain{key, value}] > 0 {
			return framework.Refuse("node(s) didn't match pod anti-affinity rules")
		}
	}
	return s.near(pod, node)
}

// near checks the required affinity. The node needs every topology key, and matching pods in each
// domain. If no pod of the cluster matches, a pod that matches itself fits.
func (s *affinityState) near(pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	found := true
	for i := range pod.RequiredAffinity {
		key := pod.RequiredAffinity[i].TopologyKey
		value, ok := node.Node.Labels[key]
		if !ok {
			return framework.RefuseAlways("node(s) didn't match pod affinity rules")
		}
		found = found && s.affinity[domain{key, value}] > 0
	}
	if found || len(s.affinity) == 0 && s.selfMatch {
		return nil
	}
	return framework.RefuseAlways("node(s) didn't match pod affinity rules")
}

func (interPodAffinity) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeLabels | framework.PodAssigned | framework.PodRemoved | framework.SelfChanged
}

type preferences map[domain]int64

func (interPodAffinity) PreScore(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot, _ []*framework.NodeInfo) *framework.Status {
	own := len(pod.PreferredAffinity)+len(pod.PreferredAntiAffinity) > 0
	nodes := snapshot.NodesWithAffinity()
	if own {
		nodes = snapshot.Nodes
	}
	prefer := preferences{}
	podNamespace := namespaceLabels(snapshot, pod.Pod.Namespace)
	for _, node := range nodes {
		pods := node.WithAffinity
		if own {
			pods = node.Pods
		}
		for _, other := range pods {
			otherNamespace := namespaceLabels(snapshot, other.Pod.Namespace)
			prefer.add(node, pod.PreferredAffinity, other, otherNamespace, 1)
			prefer.add(node, pod.PreferredAntiAffinity, other, otherNamespace, -1)
			prefer.add(node, other.PreferredAffinity, pod, podNamespace, 1)
			prefer.add(node, other.PreferredAntiAffinity, pod, podNamespace, -1)
			// An existing pod that requires this one nearby counts with weight 1
			// (hardPodAffinityWeight).
			prefer.add(node, other.RequiredAffinity, pod, podNamespace, 1)
		}
	}
	state["InterPodAffinity/score"] = prefer
	return nil
}

func (p preferences) add(node *framework.NodeInfo, terms []framework.Term, about *framework.PodInfo, namespace labels.Set, sign int64) {
	for i := range terms {
		t := &terms[i]
		value, ok := node.Node.Labels[t.TopologyKey]
		if ok && t.Matches(about.Pod.Namespace, about.Pod.Labels, namespace) {
			p[domain{t.TopologyKey, value}] += sign * max(t.Weight, 1)
		}
	}
}

func (interPodAffinity) Score(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	prefer, _ := state["InterPodAffinity/score"].(preferences)
	if len(prefer) == 0 {
		return 0, nil
	}
	var sum int64
	for key, value := range node.Node.Labels {
		sum += prefer[domain{key, value}]
	}
	return sum, nil
}

func (interPodAffinity) Normalize(_ framework.State, _ *framework.PodInfo, _ []*framework.NodeInfo, scores []int64) {
	least, most := scores[0], scores[0]
	for _, s := range scores {
		least, most = min(least, s), max(most, s)
	}
	for i, s := range scores {
		scores[i] = 0
		if most > least {
			scores[i] = framework.MaxNodeScore * (s - least) / (most - least)
		}
	}
}
