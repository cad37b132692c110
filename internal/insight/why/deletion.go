package why

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Causes of deletions that do not end.
const (
	causeFinalizer          = "deletion-finalizer"
	causeClaimInUse         = "deletion-claim-in-use"
	causeVolumeInUse        = "deletion-volume-in-use"
	causeDependents         = "deletion-dependents"
	causeDeadNode           = "deletion-pod-on-dead-node"
	causePodGrace           = "deletion-pod-grace"
	causePodLingers         = "deletion-pod-lingers"
	causeNamespaceContent   = "namespace-content"
	causeNamespaceDiscovery = "namespace-discovery"
)

// stuckAfter is how long a deletion may take before it is a finding.
const stuckAfter = 10 * time.Second

// podEndsAfter is the same for a pod, whose containers get time to end.
const podEndsAfter = 20 * time.Second

// deletion explains an object that is being deleted and is still there.
func deletion(s *Snapshot, o runtime.Object) []Finding {
	m := metaOf(o)
	at := m.GetDeletionTimestamp()
	if at == nil {
		return nil
	}
	patience := stuckAfter
	// The time of a pod includes its grace period.
	if p, ok := o.(*corev1.Pod); ok && p.DeletionGracePeriodSeconds != nil {
		asked := metav1.NewTime(at.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second))
		at, patience = &asked, podEndsAfter
	}
	if s.Now.Sub(at.Time) < patience && len(m.GetFinalizers()) == 0 {
		return nil
	}
	since := "it has been in deletion for " + age(s.Now.Sub(at.Time))
	switch t := o.(type) {
	case *corev1.Pod:
		if len(m.GetFinalizers()) == 0 {
			return stuckPod(s, t, since)
		}
	case *corev1.Namespace:
		return stuckNamespace(s, t, since)
	case *corev1.PersistentVolumeClaim:
		if slices.Contains(m.GetFinalizers(), "kubernetes.io/pvc-protection") {
			if users := usersOf(s, t); len(users) > 0 {
				f := Finding{Cause: causeClaimInUse, Problem: since + ": " + names(users) + " still uses it.", Remedy: "Delete the pods that use it; the claim goes when they have ended."}
				return []Finding{f}
			}
		}
	case *corev1.PersistentVolume:
		if r := t.Spec.ClaimRef; r != nil && t.Status.Phase == corev1.VolumeBound && slices.Contains(m.GetFinalizers(), "kubernetes.io/pv-protection") {
			return one(causeVolumeInUse, since+": the claim "+r.Namespace+"/"+r.Name+" is bound to it.", "Delete the claim first.")
		}
	}
	return stuckFinalizers(m, since)
}

func usersOf(s *Snapshot, c *corev1.PersistentVolumeClaim) (out []string) {
	pods, _ := list[*corev1.Pod](s, c.Namespace)
	for _, p := range pods {
		if slices.Contains(claimNames(p), c.Name) && !podOver(p) {
			out = append(out, refTo(p).String())
		}
	}
	return out
}

// stuckFinalizers names the finalizers and, by managed fields, the managers that set them.
func stuckFinalizers(m metav1.Object, since string) []Finding {
	finalizers := m.GetFinalizers()
	if len(finalizers) == 0 {
		return nil
	}
	if slices.Contains(finalizers, metav1.FinalizerDeleteDependents) {
		return one(causeDependents, since+": it waits until its dependents are gone (foreground deletion).", "Find objects whose ownerReferences name it; they may have finalizers of their own.")
	}
	f := Finding{Cause: causeFinalizer, Problem: since + ": " + plural(len(finalizers), "finalizer") + " must be removed first: " + names(finalizers) + "."}
	f.Remedy = "Start or repair the controller of the finalizer. Only if it is gone for good, remove the finalizer by hand: its clean-up is skipped."
	for _, finalizer := range finalizers {
		if by := managerOf(m, finalizer); by != "" {
			f.Evidence = append(f.Evidence, Fact{Text: finalizer + " was set by " + by})
		}
	}
	return []Finding{f}
}

// managerOf finds the field manager that set a finalizer, with the time.
func managerOf(m metav1.Object, finalizer string) string {
	for _, e := range m.GetManagedFields() {
		if e.FieldsV1 == nil || !bytes.Contains(e.FieldsV1.Raw, []byte(`f:finalizers`)) || !bytes.Contains(e.FieldsV1.Raw, []byte(`v:\"`+finalizer+`\"`)) {
			continue
		}
		if e.Time != nil {
			return fmt.Sprintf("%s at %s", e.Manager, e.Time.UTC().Format(time.RFC3339))
		}
		return e.Manager
	}
	return ""
}

func stuckPod(s *Snapshot, p *corev1.Pod, since string) []Finding {
	grace := int64(0)
	if p.DeletionGracePeriodSeconds != nil {
		grace = *p.DeletionGracePeriodSeconds
	}
	node, presence := get[*corev1.Node](s, "", p.Spec.NodeName)
	switch {
	case p.Spec.NodeName == "" || presence == Unknown:
		return nil
	case presence == Absent || !nodeReady(node):
		f := linked(causeDeadNode, since+": only node/"+p.Spec.NodeName+" can confirm that its containers have ended.", Link{Object: Ref{"Node", "", p.Spec.NodeName}})
		f.Remedy = "Bring the node back; or, if the machine is off for good, delete the Node or taint it with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute."
		return []Finding{f}
	}
	left := p.DeletionTimestamp.Sub(s.Now)
	if left > -30*time.Second {
		return []Finding{inGrace(s, p, since, grace, left)}
	}
	return one(causePodLingers, since+fmt.Sprintf(" with a grace period of %d s: its containers do not end.", grace), "Read the log of the node agent on node/"+p.Spec.NodeName+".")
}

// inGrace explains a pod whose containers have time to end.
func inGrace(s *Snapshot, p *corev1.Pod, since string, grace int64, left time.Duration) Finding {
	f := Finding{Cause: causePodGrace, Problem: since + fmt.Sprintf(": its containers have %d s to end, and %s are left.", grace, age(left))}
	f.Remedy = "Let the program end at SIGTERM. To end it now: kubectl delete pod " + p.Name + " -n " + p.Namespace + " --grace-period=1"
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		running := slices.ContainsFunc(p.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool { return st.Name == c.Name && st.State.Running != nil })
		switch {
		case !running:
		case c.Lifecycle != nil && c.Lifecycle.PreStop != nil:
			f.Evidence = append(f.Evidence, Fact{Text: "container " + c.Name + " still runs; SIGTERM comes after its preStop hook: " + hookText(c.Lifecycle.PreStop)})
		default:
			f.Evidence = append(f.Evidence, Fact{Text: "container " + c.Name + " still runs after SIGTERM"})
		}
	}
	if e := s.event(refTo(p), "FailedPreStopHook"); e != nil {
		f.Evidence = append(f.Evidence, Fact{Text: "event FailedPreStopHook: " + oneLine(e.Message)})
	}
	return f
}

func hookText(h *corev1.LifecycleHandler) string {
	switch {
	case h.Exec != nil:
		return "exec " + strings.Join(h.Exec.Command, " ")
	case h.HTTPGet != nil:
		return "GET " + h.HTTPGet.Path
	case h.Sleep != nil:
		return fmt.Sprintf("sleep %d s", h.Sleep.Seconds)
	}
	return "of an unknown kind"
}

func stuckNamespace(s *Snapshot, n *corev1.Namespace, since string) []Finding {
	var out []Finding
	for _, c := range n.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		fact := []Fact{{Text: string(c.Type) + ": " + oneLine(c.Message)}}
		switch c.Type {
		case corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure:
			f := Finding{Cause: causeNamespaceDiscovery, Problem: since + ": the API server cannot list all kinds of objects.", Evidence: fact, Remedy: "Repair or delete the APIService that does not answer."}
			services, _ := list[*apiregistrationv1.APIService](s, "")
			for _, a := range services {
				f.links = append(f.links, Link{Object: refTo(a), Only: apiCauses})
			}
			return []Finding{f}
		case corev1.NamespaceFinalizersRemaining:
			out = append([]Finding{{Cause: causeFinalizer, Problem: since + ": objects in it have finalizers that must be removed first.", Evidence: fact, Remedy: "Start or repair the controllers of these finalizers."}}, out...)
		case corev1.NamespaceContentRemaining:
			out = append(out, Finding{Cause: causeNamespaceContent, Problem: since + ": objects are left in it.", Evidence: fact, Remedy: "Find out why these objects stay: `knarr why -n " + n.Name + "`."})
		}
	}
	if len(out) == 0 && len(n.Spec.Finalizers) > 0 {
		var list []string
		for _, f := range n.Spec.Finalizers {
			list = append(list, string(f))
		}
		return one(causeFinalizer, since+": it waits for its finalizers "+strings.Join(list, ", ")+".", "Check that the namespace controller runs.")
	}
	if len(out) == 0 {
		return stuckFinalizers(n, since)
	}
	return out[:1]
}
