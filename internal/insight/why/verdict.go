package why

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// NodeVerdict is the scheduler's judgement of one node for a pod.
type NodeVerdict struct {
	Node string `json:"node"`
	// Fits means that the node takes the pod.
	Fits bool `json:"fits"`
	// Never means that the node does not take the pod even when it runs no other pod.
	Never bool `json:"never"`
	// Refusals are all reasons, not only the first one.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Refusal is the reason of one scheduling plugin.
type Refusal struct {
	Plugin string `json:"plugin"`
	Reason string `json:"reason"`
	// Change is what would have to change.
	Change string `json:"change,omitempty"`
	cause  string
	never  bool
}

// verdicts judges all nodes with the plugins of the default profile. whole are the refusals of the
// pod on all nodes. False means that nodes or pods are unknown.
func verdicts(s *Snapshot, pod *corev1.Pod) (nodes []NodeVerdict, whole []Refusal, ok bool) {
	full, ok := schedulingSnapshot(s, true)
	if !ok {
		return nil, nil, false
	}
	empty, _ := schedulingSnapshot(s, false)
	info := framework.NewPodInfo(pod)
	profile := plugins.Default(corev1.DefaultSchedulerName)
	whole, filter := prefilter(&profile, full, info)
	_, filterEmpty := prefilter(&profile, empty, info)
	for i, node := range full.Nodes.All() {
		v := NodeVerdict{Node: node.Name(), Refusals: filter(node)}
		v.Fits = len(v.Refusals) == 0 && len(whole) == 0
		for _, r := range filterEmpty(empty.Nodes.At(i)) {
			for j := range v.Refusals {
				if v.Refusals[j].Plugin == r.Plugin && v.Refusals[j].cause == r.cause && lasting(r.cause) {
					v.Never, v.Refusals[j].never = true, true
				}
			}
		}
		nodes = append(nodes, v)
	}
	return nodes, whole, true
}

// lasting reports whether a refusal by an empty node stays until the pod or the node is changed.
// The others end on their own: a node becomes Ready, or a pod that an affinity asks for comes.
func lasting(cause string) bool {
	switch cause {
	case causeNodesCordoned, causeNodesUnwell, causePodAffinity, causeSpread:
		return false
	}
	return true
}

// prefilter runs all PreFilter plugins. The function that it returns runs all Filter plugins for a
// node.
func prefilter(profile *framework.Profile, snapshot *framework.Snapshot, pod *framework.PodInfo) ([]Refusal, func(*framework.NodeInfo) []Refusal) {
	state, skipped := framework.State{}, sets.New[string]()
	var allowed sets.Set[string]
	var whole []Refusal
	for _, p := range profile.PreFilters {
		only, status := p.PreFilter(state, pod, snapshot)
		if status.Skipped() || !status.OK() {
			skipped.Insert(p.Name())
		}
		if !status.Skipped() && !status.OK() {
			whole = append(whole, Refusal{Plugin: p.Name(), Reason: strings.Join(status.Reasons, "; "), cause: wholeCause(p.Name())})
		}
		if only != nil {
			allowed = only
		}
	}
	return whole, func(node *framework.NodeInfo) []Refusal {
		var out []Refusal
		if allowed != nil && !allowed.Has(node.Name()) {
			out = append(out, Refusal{Plugin: "NodeAffinity", Reason: "the pod names other nodes", cause: causeSelector})
		}
		for _, f := range profile.Filters {
			if skipped.Has(f.Name()) || f.Name() == "NodeAffinity" && len(out) > 0 {
				continue
			}
			if status := f.Filter(state, pod, node); !status.OK() {
				out = append(out, refusals(f.Name(), status, pod, node)...)
			}
		}
		return out
	}
}

// wholeCause is the cause of a plugin that refuses a pod on all nodes at once.
func wholeCause(plugin string) string {
	if plugin == framework.DynamicResources {
		return causeDevices
	}
	return causeVolumes
}

// refusals explains the status of a Filter plugin.
func refusals(plugin string, status *framework.Status, pod *framework.PodInfo, node *framework.NodeInfo) []Refusal {
	reason := strings.TrimPrefix(strings.Join(status.Reasons, "; "), "node(s) ")
	one := func(cause, reason, change string) []Refusal {
		return []Refusal{{Plugin: plugin, Reason: reason, Change: change, cause: cause}}
	}
	switch plugin {
	case "NodeUnschedulable":
		return one(causeNodesCordoned, "it is cordoned", "kubectl uncordon "+node.Name())
	case "NodeName":
		return one(causeSelector, "the pod names node "+pod.Pod.Spec.NodeName, "")
	case "TaintToleration":
		taint := untolerated(pod.Pod, node.Node)
		if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			return one(causeNodesUnwell, "it has the taint "+taint.ToString()+" of its condition", "")
		}
		return one(causeTaint, "the pod does not tolerate its taint "+taint.ToString(), "add a toleration for "+taint.Key+" to the pod")
	case "NodeAffinity":
		return one(causeSelector, unselected(pod.Pod, node.Node), "")
	case "NodePorts":
		taken, by := takenPort(pod, node)
		return one(causeHostPort, fmt.Sprintf("host port %d is in use by pod/%s of namespace %s", taken, by.Name, by.Namespace), "")
	case "NodeResourcesFit":
		return shortages(pod, node)
	case "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone":
		return one(causeVolumes, reason, "")
	case "PodTopologySpread":
		return one(causeSpread, "it would break a topology spread constraint: "+reason, "")
	case "InterPodAffinity":
		if strings.Contains(reason, "anti-affinity") {
			return one(causeAntiAffinity, reason, "")
		}
		return one(causePodAffinity, "no pod that the pod's affinity asks for is there", "")
	case "DynamicResources":
		return one(causeDevices, reason, "")
	}
	return one(causeUnschedulable, reason, "")
}

// shortages lists the resources of which the node has too little.
func shortages(pod *framework.PodInfo, node *framework.NodeInfo) []Refusal {
	var out []Refusal
	check := func(cause, name string, want, used, have int64, show func(int64) string) {
		if want == 0 || want <= have-used {
			return
		}
		r := Refusal{Plugin: "NodeResourcesFit", cause: cause}
		if want > have {
			r.Reason = fmt.Sprintf("the pod asks for %s %s, the node has %s in all", show(want), name, show(have))
			r.Change = fmt.Sprintf("ask for %s %s at most, or add a larger node", show(have), name)
		} else {
			r.Reason = fmt.Sprintf("the pod asks for %s %s, %s of %s are free", show(want), name, show(have-used), show(have))
			r.Change = fmt.Sprintf("ask for %s %s at most, or free %s", show(max(have-used, 0)), name, show(want-(have-used)))
		}
		out = append(out, r)
	}
	want, used, have := pod.Requests, node.Requested, node.Allocatable
	check(causeCPU, "CPU", want.MilliCPU, used.MilliCPU, have.MilliCPU, cpus)
	check(causeMemory, "memory", want.Memory, used.Memory, have.Memory, byteText)
	check(causeEphemeral, "ephemeral storage", want.EphemeralStorage, used.EphemeralStorage, have.EphemeralStorage, byteText)
	for _, name := range sets.List(sets.KeySet(want.Scalar)) {
		check(causeExtended, string(name), want.Scalar[name], used.Scalar[name], have.Scalar[name], func(n int64) string { return fmt.Sprint(n) })
	}
	if int64(len(node.Pods))+1 > have.Pods {
		out = append(out, Refusal{
			Plugin: "NodeResourcesFit", cause: causePods,
			Reason: fmt.Sprintf("%d of at most %d pods run there", len(node.Pods), have.Pods), Change: "add a node",
		})
	}
	return out
}

func cpus(milli int64) string {
	if milli%1000 == 0 {
		return fmt.Sprint(milli / 1000)
	}
	return fmt.Sprintf("%dm", milli)
}

func byteText(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%dGi", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%dMi", n>>20)
	}
	return fmt.Sprint(n)
}

func untolerated(pod *corev1.Pod, node *corev1.Node) corev1.Taint {
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		tolerated := false
		for i := range pod.Spec.Tolerations {
			tolerated = tolerated || pod.Spec.Tolerations[i].ToleratesTaint(quiet, &taint, true)
		}
		if !tolerated {
			return taint
		}
	}
	return corev1.Taint{}
}

// unselected says which label of the pod's selector or affinity the node lacks.
func unselected(pod *corev1.Pod, node *corev1.Node) string {
	for _, key := range sets.List(sets.KeySet(pod.Spec.NodeSelector)) {
		want := pod.Spec.NodeSelector[key]
		switch is, ok := node.Labels[key]; {
		case !ok:
			return fmt.Sprintf("the pod's node selector asks for the label %s=%s, which it does not have", key, want)
		case is != want:
			return fmt.Sprintf("the pod's node selector asks for the label %s=%s, and it has %s", key, want, is)
		}
	}
	return "it does not match the pod's node affinity"
}

func takenPort(pod *framework.PodInfo, node *framework.NodeInfo) (int32, Ref) {
	for _, want := range pod.Ports {
		for _, other := range node.Pods {
			for _, taken := range other.Ports {
				if want.Conflicts(taken) {
					return want.Port, refTo(other.Pod)
				}
			}
		}
	}
	return 0, Ref{}
}

// schedulingSnapshot returns the scheduler's snapshot. Without pods the nodes are empty.
func schedulingSnapshot(s *Snapshot, withPods bool) (*framework.Snapshot, bool) {
	if s.scheduling[withPods] != nil {
		return s.scheduling[withPods], true
	}
	made, ok := newSchedulingSnapshot(s, withPods)
	if ok {
		if s.scheduling == nil {
			s.scheduling = map[bool]*framework.Snapshot{}
		}
		s.scheduling[withPods] = made
	}
	return made, ok
}

func newSchedulingSnapshot(s *Snapshot, withPods bool) (*framework.Snapshot, bool) {
	nodes, ok := list[*corev1.Node](s, "")
	pods, podsOK := list[*corev1.Pod](s, "")
	if !ok || !podsOK {
		return nil, false
	}
	infos, byName := make([]*framework.NodeInfo, 0, len(nodes)), map[string]*framework.NodeInfo{}
	for _, n := range nodes {
		info := framework.NewNodeInfo(n)
		infos, byName[n.Name] = append(infos, info), info
	}
	for _, p := range pods {
		if n := byName[p.Spec.NodeName]; withPods && n != nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			n.AddPod(framework.NewPodInfo(p))
		}
	}
	namespaceLabels := func(name string) labels.Set {
		if n, p := get[*corev1.Namespace](s, "", name); p == Found {
			return n.Labels
		}
		return nil
	}
	out := framework.NewSnapshot(infos, namespaceLabels, func(*corev1.Pod) labels.Selector { return labels.Nothing() })
	out.Storage = func() (framework.Storage, error) { return storage{s}, nil }
	out.Devices = func() (framework.Devices, error) { return devices{s, withPods, selectors}, nil }
	return out, true
}
