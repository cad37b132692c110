package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Causes of workloads that are not complete.
const (
	causeDeploymentPaused      = "deployment-paused"
	causeDeploymentDeadline    = "deployment-progress-deadline"
	causeDeploymentUnavailable = "deployment-unavailable"
	causeDeploymentReplicas    = "deployment-replicas"
	causeReplicaSet            = "replicaset-unavailable"
	causeOrdinal               = "statefulset-ordinal"
	causeStatefulSet           = "statefulset-unavailable"
	causeDaemonSetNoNodes      = "daemonset-no-nodes"
	causeDaemonSet             = "daemonset-unavailable"
	causePartition             = "statefulset-partition"
)

type owner struct {
	ref      Ref
	replicas int32
}

// templateOwner finds a workload whose pods a selector would match.
func templateOwner(s *Snapshot, namespace string, selector labels.Selector) (owner, bool) {
	deployments, _ := list[*appsv1.Deployment](s, namespace)
	for _, d := range deployments {
		if selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			return owner{refTo(d), replicas(d.Spec.Replicas)}, true
		}
	}
	sets, _ := list[*appsv1.StatefulSet](s, namespace)
	for _, d := range sets {
		if selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			return owner{refTo(d), replicas(d.Spec.Replicas)}, true
		}
	}
	daemons, _ := list[*appsv1.DaemonSet](s, namespace)
	for _, d := range daemons {
		if selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			return owner{refTo(d), 1}, true
		}
	}
	return owner{}, false
}

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// ownedPods lists the pods of a controller that are not over.
func ownedPods(s *Snapshot, namespace string, uid types.UID) (out []*corev1.Pod) {
	pods, _ := list[*corev1.Pod](s, namespace)
	for _, p := range pods {
		if c := metav1.GetControllerOf(p); c != nil && c.UID == uid {
			out = append(out, p)
		}
	}
	return out
}

// unreadyLinks links to the pods that are not ready.
func unreadyLinks(pods []*corev1.Pod) (out []Link) {
	for _, p := range pods {
		if !podReady(p) {
			out = append(out, Link{Object: refTo(p)})
		}
	}
	return out
}

// deployment explains a rollout that does not finish.
func deployment(s *Snapshot, d *appsv1.Deployment) []Finding {
	want := replicas(d.Spec.Replicas)
	if d.DeletionTimestamp != nil {
		return nil
	}
	newest := newestReplicaSet(s, d)
	if d.Spec.Paused && (newest == nil || d.Status.UpdatedReplicas < want || d.Status.ObservedGeneration < d.Generation) {
		return one(causeDeploymentPaused, "its rollout is paused.", "kubectl rollout resume deployment/"+d.Name+" -n "+d.Namespace)
	}
	if want == d.Status.AvailableReplicas && d.Status.UpdatedReplicas == want {
		return nil
	}
	if f := deploymentFailure(s, d, newest); f != nil {
		return f
	}
	f := Finding{Cause: causeDeploymentUnavailable, Problem: fmt.Sprintf("%d of its %s are available.", d.Status.AvailableReplicas, plural(int(want), "replica"))}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			f.Cause, f.Problem = causeDeploymentDeadline, strings.TrimSuffix(f.Problem, ".")+", and its rollout made no progress within progressDeadlineSeconds."
			f.Evidence = append(f.Evidence, Fact{Text: oneLine(c.Message)})
		}
	}
	if newest != nil {
		f.links = unreadyLinks(ownedPods(s, d.Namespace, newest.UID))
		if len(f.links) == 0 {
			f.links = []Link{{Object: refTo(newest)}}
		}
	}
	f.Remedy = "Wait, or undo: kubectl rollout undo deployment/" + d.Name + " -n " + d.Namespace + "."
	return []Finding{f}
}

// deploymentFailure explains pods that cannot be created.
func deploymentFailure(s *Snapshot, d *appsv1.Deployment, newest *appsv1.ReplicaSet) []Finding {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			f := linked(causeDeploymentReplicas, fmt.Sprintf("%d of its %s exist: pods are rejected.", d.Status.Replicas, plural(int(replicas(d.Spec.Replicas)), "replica")))
			if newest != nil {
				f.links = []Link{{Object: refTo(newest)}}
			}
			if newest == nil || replicaFailure(newest) == "" {
				return []Finding{rejection(s, d.Namespace, c.Message)}
			}
			return []Finding{f}
		}
	}
	return nil
}

func newestReplicaSet(s *Snapshot, d *appsv1.Deployment) *appsv1.ReplicaSet {
	all, _ := list[*appsv1.ReplicaSet](s, d.Namespace)
	var newest *appsv1.ReplicaSet
	for _, r := range all {
		c := metav1.GetControllerOf(r)
		if c == nil || c.UID != d.UID {
			continue
		}
		if newest == nil || cmp.Or(cmp.Compare(len(revision(r)), len(revision(newest))), cmp.Compare(revision(r), revision(newest))) > 0 {
			newest = r
		}
	}
	return newest
}

func revision(r *appsv1.ReplicaSet) string { return r.Annotations["deployment.kubernetes.io/revision"] }

func replicaFailure(r *appsv1.ReplicaSet) string {
	for _, c := range r.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// replicaSet explains a ReplicaSet that lacks pods.
func replicaSet(s *Snapshot, r *appsv1.ReplicaSet) []Finding {
	if message := replicaFailure(r); message != "" {
		if e := s.event(refTo(r), "FailedCreate"); e != nil {
			message = e.Message // the condition keeps its first message
		}
		return []Finding{rejection(s, r.Namespace, message)}
	}
	if want := replicas(r.Spec.Replicas); r.Status.AvailableReplicas < want && r.DeletionTimestamp == nil {
		f := linked(causeReplicaSet, fmt.Sprintf("%d of its %s are available.", r.Status.AvailableReplicas, plural(int(want), "replica")), unreadyLinks(ownedPods(s, r.Namespace, r.UID))...)
		return []Finding{f}
	}
	return nil
}

// failedCreate explains the FailedCreate event of a workload, if pods are missing.
func failedCreate(s *Snapshot, ref Ref) []Finding {
	if e := s.event(ref, "FailedCreate"); e != nil {
		f := rejection(s, ref.Namespace, e.Message)
		return []Finding{f}
	}
	return nil
}

// statefulSet explains a StatefulSet that waits for one of its pods.
func statefulSet(s *Snapshot, set *appsv1.StatefulSet) []Finding {
	want := replicas(set.Spec.Replicas)
	if set.DeletionTimestamp != nil {
		return nil
	}
	if set.Status.AvailableReplicas >= want {
		u := set.Spec.UpdateStrategy.RollingUpdate
		if set.Status.UpdateRevision != set.Status.CurrentRevision && u != nil && u.Partition != nil && *u.Partition > 0 {
			return one(causePartition, fmt.Sprintf("its pods below ordinal %d keep the old revision: the update strategy has this partition.", *u.Partition), "Lower spec.updateStrategy.rollingUpdate.partition to continue.")
		}
		return nil
	}
	pods := ownedPods(s, set.Namespace, set.UID)
	if len(pods) < int(want) {
		if f := failedCreate(s, refTo(set)); f != nil {
			return f
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	links := unreadyLinks(pods)
	if len(links) == 0 {
		return one(causeStatefulSet, fmt.Sprintf("%d of its %s are available.", set.Status.AvailableReplicas, plural(int(want), "replica")), "Read its events.")
	}
	first := links[0].Object
	if set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
		return []Finding{linked(causeOrdinal, fmt.Sprintf("%d of its %s are available: it waits for %s before it goes on.", set.Status.AvailableReplicas, plural(int(want), "replica"), first), Link{Object: first})}
	}
	return []Finding{linked(causeStatefulSet, fmt.Sprintf("%d of its %s are available.", set.Status.AvailableReplicas, plural(int(want), "replica")), links...)}
}

// daemonSet explains a DaemonSet without pods on nodes.
func daemonSet(s *Snapshot, d *appsv1.DaemonSet) []Finding {
	if d.DeletionTimestamp != nil || d.Status.ObservedGeneration < d.Generation {
		return nil
	}
	if d.Status.DesiredNumberScheduled == 0 {
		nodes, ok := list[*corev1.Node](s, "")
		if !ok {
			return nil
		}
		f := Finding{Cause: causeDaemonSetNoNodes, Problem: fmt.Sprintf("it runs on no node: its selector, affinity or missing tolerations exclude all %d.", len(nodes)), Remedy: "Correct nodeSelector, affinity or tolerations of its template."}
		pod := &corev1.Pod{Spec: d.Spec.Template.Spec}
		for _, n := range nodes[:min(len(nodes), 5)] {
			if taint := untolerated(pod, n); taint.Key != "" {
				f.Evidence = append(f.Evidence, nodeFact(n.Name, "its taint "+taint.ToString()+" is not tolerated"))
			} else {
				f.Evidence = append(f.Evidence, nodeFact(n.Name, unselected(pod, n)))
			}
		}
		return []Finding{f}
	}
	if d.Status.NumberAvailable >= d.Status.DesiredNumberScheduled {
		return nil
	}
	pods := ownedPods(s, d.Namespace, d.UID)
	if len(pods) < int(d.Status.DesiredNumberScheduled) {
		if f := failedCreate(s, refTo(d)); f != nil {
			return f
		}
	}
	return []Finding{linked(causeDaemonSet, fmt.Sprintf("%d of its %s are available.", d.Status.NumberAvailable, plural(int(d.Status.DesiredNumberScheduled), "pod")), unreadyLinks(pods)...)}
}
