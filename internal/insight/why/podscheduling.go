package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/storage/ephemeral"
)

// quiet is the logger that helpers of k8s.io/api require.
var quiet = logr.Discard()

// Causes of pods that have no node.
const (
	causeGated          = "pod-scheduling-gated"
	causeNoScheduler    = "pod-scheduler-absent"
	causeSilent         = "pod-scheduler-silent"
	causeNoNodes        = "pod-no-nodes"
	causeCPU            = "pod-cpu"
	causeMemory         = "pod-memory"
	causeEphemeral      = "pod-ephemeral-storage"
	causeExtended       = "pod-extended-resource"
	causePods           = "pod-nodes-full"
	causeTaint          = "pod-taint"
	causeSelector       = "pod-node-selector"
	causeAntiAffinity   = "pod-anti-affinity"
	causePodAffinity    = "pod-affinity"
	causeSpread         = "pod-topology-spread"
	causeHostPort       = "pod-host-port"
	causeNodesCordoned  = "pod-nodes-cordoned"
	causeNodesUnwell    = "pod-nodes-not-ready"
	causeVolumes        = "pod-volume-placement"
	causeClaim          = "pod-claim"
	causeDevices        = "pod-devices"
	causeUnschedulable  = "pod-unschedulable"
	causePreempts       = "pod-waits-for-preemption"
	causeFitsNow        = "pod-fits-now"
	causeNodeMissing    = "pod-node-missing"
	causeDeviceClaim    = "pod-resource-claim"
	causeUnknownVerdict = "pod-verdict-unknown"
)

// silentAfter is the age at which a pod without a scheduler's word is a finding.
const silentAfter = 10 * time.Second

// podScheduling explains a pod that has no node.
func podScheduling(s *Snapshot, p *corev1.Pod) []Finding {
	switch {
	case p.Spec.NodeName != "" || p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodPending && p.Status.Phase != "":
		return nil
	case len(p.Spec.SchedulingGates) > 0:
		return one(causeGated, "it is not scheduled: "+plural(len(p.Spec.SchedulingGates), "scheduling gate")+" must be removed first: "+names(gates(p))+".",
			"The controller that set the gate must remove it from spec.schedulingGates.")
	}
	if f := claimsOfPod(s, p); f != nil {
		return f
	}
	if p.Status.NominatedNodeName != "" {
		f := one(causePreempts, "it waits for node/"+p.Status.NominatedNodeName+": pods of lower priority there are evicted to make room.",
			"Wait until they have ended.")
		f[0].Evidence = terminatingOn(s, p.Status.NominatedNodeName)
		return f
	}
	scheduled := podCondition(p, corev1.PodScheduled)
	if f := unscheduledByNobody(s, p, scheduled); f != nil {
		return f
	}
	return byVerdicts(s, p, scheduled)
}

// unscheduledByNobody explains a pod that no scheduler has examined.
func unscheduledByNobody(s *Snapshot, p *corev1.Pod, scheduled *corev1.PodCondition) []Finding {
	name := p.Spec.SchedulerName
	if scheduled != nil || s.Now.Sub(p.CreationTimestamp.Time) < silentAfter {
		return nil
	}
	if name != "" && name != corev1.DefaultSchedulerName {
		return one(causeNoScheduler, "it asks for the scheduler "+name+", which has not examined it: it may not run.",
			"Start that scheduler, or set spec.schedulerName to "+corev1.DefaultSchedulerName+" in a new pod.")
	}
	f := one(causeSilent, "the scheduler has not examined it for "+age(s.Now.Sub(p.CreationTimestamp.Time))+".", "Check that the scheduler runs and leads: `knarr status`, or the Lease kube-system/kube-scheduler.")
	f[0].links = []Link{{Object: Ref{"Lease", "kube-system", "kube-scheduler"}, Only: []string{causeLease}}}
	return f
}

func gates(p *corev1.Pod) (out []string) {
	for _, g := range p.Spec.SchedulingGates {
		out = append(out, g.Name)
	}
	return out
}

func terminatingOn(s *Snapshot, node string) (out []Fact) {
	pods, _ := list[*corev1.Pod](s, "")
	for _, p := range pods {
		if p.Spec.NodeName == node && p.DeletionTimestamp != nil {
			ref := refTo(p)
			out = append(out, Fact{Text: ref.String() + " is being deleted", Object: &ref})
		}
	}
	return out
}

// claimsOfPod explains a pod whose claims are missing or unbound.
func claimsOfPod(s *Snapshot, p *corev1.Pod) []Finding {
	var out []Finding
	for _, name := range claimNames(p) {
		claim, presence := get[*corev1.PersistentVolumeClaim](s, p.Namespace, name)
		ref := Ref{"PersistentVolumeClaim", p.Namespace, name}
		switch {
		case presence == Absent:
			out = append(out, linked(causeClaim, "it waits for "+ref.String()+", which does not exist.", Link{Object: ref}))
		case presence != Found:
		case claim.DeletionTimestamp != nil && p.Spec.NodeName == "":
			out = append(out, linked(causeClaim, "it waits for "+ref.String()+", which is being deleted.", Link{Object: ref}))
		case claim.Status.Phase == corev1.ClaimLost || claim.Status.Phase == corev1.ClaimPending && !waitsForPod(s, claim):
			out = append(out, linked(causeClaim, "it waits for "+ref.String()+", which is not bound to a volume.", Link{Object: ref}))
		}
	}
	return append(out, deviceClaimsOfPod(s, p)...)
}

// deviceClaimsOfPod explains a pod whose resource claims are missing, or whose devices exist on no
// node. If devices exist, the verdicts on nodes explain more.
func deviceClaimsOfPod(s *Snapshot, p *corev1.Pod) (out []Finding) {
	for _, c := range p.Spec.ResourceClaims {
		switch {
		case c.ResourceClaimName != nil:
			ref := Ref{"ResourceClaim", p.Namespace, *c.ResourceClaimName}
			if deviceClaimBlocks(s, ref) {
				out = append(out, linked(causeDeviceClaim, "it waits for devices of "+ref.String()+".", Link{Object: ref}))
			}
		case c.ResourceClaimTemplateName != nil:
			ref := Ref{"ResourceClaimTemplate", p.Namespace, *c.ResourceClaimTemplateName}
			if _, presence := get[*resourcev1.ResourceClaimTemplate](s, ref.Namespace, ref.Name); presence == Absent {
				out = append(out, linked(causeDeviceClaim, "it needs a resource claim of "+ref.String()+", which does not exist.", Link{Object: ref}))
				continue
			}
			for _, made := range p.Status.ResourceClaimStatuses {
				if made.Name == c.Name && made.ResourceClaimName != nil && deviceClaimBlocks(s, Ref{"ResourceClaim", p.Namespace, *made.ResourceClaimName}) {
					ref = Ref{"ResourceClaim", p.Namespace, *made.ResourceClaimName}
					out = append(out, linked(causeDeviceClaim, "it waits for devices of "+ref.String()+".", Link{Object: ref}))
				}
			}
		}
	}
	return out
}

func claimNames(p *corev1.Pod) (out []string) {
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			out = append(out, ephemeral.VolumeClaimName(p, v))
		}
	}
	return out
}

// byVerdicts explains a pod by what the scheduler's plugins say about each node.
func byVerdicts(s *Snapshot, p *corev1.Pod, scheduled *corev1.PodCondition) []Finding {
	nodes, whole, ok := verdicts(s, p)
	if !ok {
		if f := byPlugin(s, scheduled); f != nil {
			return f
		}
	}
	switch {
	case !ok && scheduled != nil && scheduled.Message != "":
		f := one(causeUnknownVerdict, "the scheduler found no node: "+oneLine(scheduled.Message), "Ask with the right to list nodes and pods: the verdicts on nodes need them.")
		return f
	case !ok:
		return nil
	case len(nodes) == 0:
		return one(causeNoNodes, "the cluster has no node.", "Add one: `knarr node --join URL --token TOKEN`.")
	case len(whole) > 0:
		f := one(whole[0].cause, "no node takes it: "+whole[0].Reason+".", "")
		return f
	}
	for _, v := range nodes {
		if v.Fits {
			if f := byPlugin(s, scheduled); f != nil {
				return f
			}
			return one(causeFitsNow, "node/"+v.Node+" would take it now; the scheduler tries again within minutes.", "Wait, or delete the pod if a controller makes a new one.")
		}
	}
	return []Finding{refused(s, p, nodes)}
}

// order of causes if several nodes are refused for different ones: the first is what one would
// change first.
var refusalOrder = []string{
	causeCPU, causeMemory, causeEphemeral, causeExtended, causePods, causeHostPort, causeAntiAffinity, causeSpread, causePodAffinity,
	causeVolumes, causeDevices, causeSelector, causeNodesCordoned, causeNodesUnwell, causeTaint, causeUnschedulable,
}

// refused makes the finding on a pod that all nodes refuse. The candidates with the fewest refusals
// decide on its cause.
func refused(s *Snapshot, p *corev1.Pod, nodes []NodeVerdict) Finding {
	candidates := candidatesOf(nodes)
	fewest := slices.MinFunc(candidates, func(a, b NodeVerdict) int { return cmp.Compare(len(a.Refusals), len(b.Refusals)) })
	count, never := map[string]int{}, true
	for _, v := range nodes {
		never = never && v.Never
	}
	for _, v := range candidates {
		if len(v.Refusals) == len(fewest.Refusals) {
			count[v.Refusals[0].cause]++
		}
	}
	cause := slices.MinFunc(slices.Sorted(maps.Keys(count)), func(a, b string) int {
		return cmp.Or(compareBool(excludes(a), excludes(b)), cmp.Compare(count[b], count[a]), cmp.Compare(slices.Index(refusalOrder, a), slices.Index(refusalOrder, b)))
	})
	f := Finding{Cause: cause, Nodes: nodes}
	f.Problem = fmt.Sprintf("no node takes it now: %s.", refusalSummary(nodes))
	if never {
		f.Problem = fmt.Sprintf("no node could ever take it, not even an empty one: %s.", refusalSummary(nodes))
	}
	best := bestOf(candidates, cause)
	if best != nil { // the node with the least to change: all of it must be changed
		var remedies []string
		for _, r := range best.Refusals {
			f.Evidence = append(f.Evidence, nodeFact(best.Node, r.Reason))
			if remedy := schedulingRemedy(p, r.cause, best.Node, r); remedy != "" {
				remedies = append(remedies, remedy)
			}
		}
		f.Remedy = strings.Join(remedies, " And: ")
	}
	for _, v := range candidates {
		for _, r := range v.Refusals {
			if r.cause == cause && (cause == causeNodesCordoned || cause == causeNodesUnwell) {
				f.links = append(f.links, Link{Object: Ref{"Node", "", v.Node}, Only: nodeCauses(cause)})
			}
		}
	}
	if never := p.Spec.PreemptionPolicy; never != nil && *never == corev1.PreemptNever && lowerPriority(s, p) {
		f.Evidence = append(f.Evidence, Fact{Text: "pods of lower priority run, but preemptionPolicy Never forbids the pod to replace them"})
	}
	return f
}

// candidatesOf returns the nodes that are meant for the pod: its selector and affinity select them,
// and it tolerates their taints. If there are none, these are the selected nodes, or all.
func candidatesOf(nodes []NodeVerdict) []NodeVerdict {
	for _, excluding := range []func(cause string) bool{excludes, func(cause string) bool { return cause == causeSelector }} {
		left := slices.DeleteFunc(slices.Clone(nodes), func(v NodeVerdict) bool { return v.refusedFor(excluding) })
		if len(left) > 0 {
			return left
		}
	}
	return nodes
}

func (v *NodeVerdict) refusedFor(is func(cause string) bool) bool {
	return slices.ContainsFunc(v.Refusals, func(r Refusal) bool { return is(r.cause) })
}

// excludes reports whether a cause only says that a node is not meant for the pod. The refusals of
// the nodes that are meant for it say more.
func excludes(cause string) bool { return cause == causeSelector || cause == causeTaint }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func nodeCauses(cause string) []string {
	if cause == causeNodesCordoned {
		return []string{causeCordoned}
	}
	return []string{causeNotReady, causeUnreachable, causePressure, causeNetwork}
}

func nodeFact(node, text string) Fact {
	return Fact{Text: "node/" + node + ": " + text, Object: &Ref{"Node", "", node}}
}

// bestOf returns a node with this cause and the fewest refusals.
func bestOf(nodes []NodeVerdict, cause string) *NodeVerdict {
	var best *NodeVerdict
	for i := range nodes {
		has := slices.ContainsFunc(nodes[i].Refusals, func(r Refusal) bool { return r.cause == cause })
		if has && (best == nil || len(nodes[i].Refusals) < len(best.Refusals)) {
			best = &nodes[i]
		}
	}
	return best
}

// refusalSummary counts the nodes by the words of the causes. Of a node that is no candidate, only
// the refusals that exclude it count.
func refusalSummary(nodes []NodeVerdict) string {
	candidates, count := sets.New[string](), map[string]int{}
	for _, v := range candidatesOf(nodes) {
		candidates.Insert(v.Node)
	}
	for _, v := range nodes {
		for _, r := range v.Refusals {
			if candidates.Has(v.Node) || excludes(r.cause) {
				count[r.cause]++
			}
		}
	}
	var parts []string
	for _, c := range refusalOrder {
		if count[c] > 0 {
			parts = append(parts, fmt.Sprintf("%s (%d of %s)", refusalWords[c], count[c], plural(len(nodes), "node")))
		}
	}
	return strings.Join(parts, ", ")
}

var refusalWords = map[string]string{
	causeCPU: "too little CPU", causeMemory: "too little memory", causeEphemeral: "too little ephemeral storage",
	causeExtended: "too few devices or huge pages", causePods: "full of pods", causeHostPort: "the host port is in use",
	causeAntiAffinity: "anti-affinity", causeSpread: "topology spread", causePodAffinity: "no pod of the affinity", causeVolumes: "the volume is not usable there",
	causeDevices: "no device", causeSelector: "not selected", causeNodesCordoned: "cordoned", causeNodesUnwell: "not ready",
	causeTaint: "a taint without toleration", causeUnschedulable: "refused",
}

func schedulingRemedy(p *corev1.Pod, cause, node string, r Refusal) string {
	switch cause {
	case causeSelector:
		for key, value := range p.Spec.NodeSelector {
			return fmt.Sprintf("kubectl label node %s %s=%s, or change the pod's node selector.", node, key, value)
		}
		return "Change the pod's node affinity, or label a node so that it matches."
	case causeHostPort:
		return "Use another host port or a Service, or move the other pod."
	case causeAntiAffinity:
		return "Add a node, or make the anti-affinity preferred instead of required."
	case causePodAffinity:
		return "Start a pod that the affinity selects, or correct its labels and topology key."
	case causeSpread:
		return "Add nodes in the emptier zones, raise maxSkew, or set whenUnsatisfiable: ScheduleAnyway."
	case causeVolumes:
		return "Add a node where the volume is usable, or use a volume that another zone has."
	case causeDevices:
		return "Free devices of other claims, add a node that has them, or change the requests and selectors of the claim."
	case causePods:
		return "Add a node, or raise maxPods of the kubelet."
	}
	if r.Change == "" {
		return ""
	}
	return strings.ToUpper(r.Change[:1]) + r.Change[1:] + "."
}

func lowerPriority(s *Snapshot, p *corev1.Pod) bool {
	pods, _ := list[*corev1.Pod](s, "")
	return slices.ContainsFunc(pods, func(o *corev1.Pod) bool { return o.Spec.NodeName != "" && priorityOf(o) < priorityOf(p) })
}

func priorityOf(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// podNode explains a pod whose node does not exist.
func podNode(s *Snapshot, p *corev1.Pod) []Finding {
	if p.Spec.NodeName == "" || podOver(p) {
		return nil
	}
	if _, presence := get[*corev1.Node](s, "", p.Spec.NodeName); presence != Absent {
		return nil
	}
	return one(causeNodeMissing, "it is bound to node/"+p.Spec.NodeName+", which does not exist.",
		"Leave spec.nodeName empty, so that the scheduler chooses; if the node was removed, delete the pod: kubectl delete pod "+p.Name+" --force.")
}

func podOver(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func podCondition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// one makes the only finding of a rule.
func one(cause, problem, remedy string) []Finding {
	return []Finding{{Cause: cause, Problem: problem, Remedy: remedy}}
}

// linked makes a finding that other objects explain.
func linked(cause, problem string, links ...Link) Finding {
	return Finding{Cause: cause, Problem: problem, links: links}
}
