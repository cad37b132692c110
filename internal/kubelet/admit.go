package kubelet

import (
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/knarr-project/knarr/internal/kubelet/eviction"
	"github.com/knarr-project/knarr/internal/kubelet/node"
	"github.com/knarr-project/knarr/internal/kubelet/shutdown"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// safeSysctls are the sysctls that every pod may set.
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}

// admit checks whether the node can run the pod. If not, the pod fails with upstream's reason. An
// admitted pod holds its resources on the node until it ends.
func (k *Kubelet) admit(pod *corev1.Pod) *worker.Failure {
	refuse := func(reason, format string, args ...any) *worker.Failure {
		message := fmt.Sprintf(format, args...)
		k.metrics.Rejected(reason)
		k.Events.Eventf(&corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, nil,
			corev1.EventTypeWarning, reason, "Admitting", "%s", message)
		return &worker.Failure{Cause: "Admission", Reason: reason, Message: "Pod was rejected: " + message}
	}
	if k.shutdown.Err() != nil {
		return refuse(shutdown.RefusedReason, shutdown.Refused)
	}
	if bad := k.forbiddenSysctl(pod); bad != "" {
		return refuse("SysctlForbidden", "forbidden sysctl: %q not allowlisted", bad)
	}
	if pod.Spec.OS != nil && pod.Spec.OS.Name != corev1.Linux {
		return refuse("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
	}
	if missing := node.MissingFeatures(pod); len(missing) > 0 {
		return refuse("PodFeatureUnsupported", "Pod requires node features that are not available: %s", strings.Join(missing, ", "))
	}
	if n, ok := k.nodes.Get("", k.NodeName); ok {
		if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n); err == nil && !match {
			return refuse("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
		}
		for i := range n.Spec.Taints {
			t := &n.Spec.Taints[i]
			if t.Effect == corev1.TaintEffectNoExecute && !tolerated(pod, t) {
				return refuse("TaintToleration", "Predicate TaintToleration failed: node(s) had untolerated taint {%s: %s}", t.Key, t.Value)
			}
		}
	}
	if reason, message := k.evictions.Refuses(pod); reason != "" {
		return refuse(reason, "%s", message)
	}
	k.mu.Lock()
	if k.portsTaken(pod) {
		k.mu.Unlock()
		return refuse("NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports")
	}
	reason, message := k.fits(pod)
	if reason == "" {
		k.admitted[pod.UID] = pod
	}
	k.mu.Unlock()
	if reason != "" && eviction.Critical(pod) && k.preempt(pod) {
		reason = ""
	}
	if reason != "" {
		return refuse(reason, "%s", message)
	}
	if r := k.places.admit(pod); r != nil {
		k.mu.Lock()
		delete(k.admitted, pod.UID)
		k.mu.Unlock()
		return refuse(r.Reason, "%s", r.Message)
	}
	return nil
}

func tolerated(pod *corev1.Pod, t *corev1.Taint) bool {
	for i := range pod.Spec.Tolerations {
		if pod.Spec.Tolerations[i].ToleratesTaint(noLog, t, true) {
			return true
		}
	}
	return false
}

// admitAlways counts a pod without checking it, because the pod runs already.
func (k *Kubelet) admitAlways(pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.admitted[pod.UID] = pod
}

// others iterates over the other pods that hold resources of the node. The caller holds k.mu.
func (k *Kubelet) others(pod *corev1.Pod) iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		for uid, p := range k.admitted {
			if w := k.workers[uid]; uid == pod.UID || w != nil && w.View().Stage >= worker.Terminated {
				continue
			}
			if !yield(p) {
				return
			}
		}
	}
}

// fits returns the resource of which the node has too little for the pod, or "" if the pod fits.
// The caller holds k.mu.
func (k *Kubelet) fits(pod *corev1.Pod) (reason, message string) {
	allocatable := k.node.Allocatable()
	used := corev1.ResourceList{}
	count := int64(0)
	for p := range k.others(pod) {
		count++
		for name, q := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	if max := allocatable.Pods().Value(); count+1 > max {
		return "OutOfpods", fmt.Sprintf("Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", count, max)
	}
	for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if q.IsZero() {
			continue
		}
		have, known := allocatable[name]
		if byDriver(pod, string(name)) || k.devices.plugins.Holds(pod.UID, string(name)) {
			continue
		}
		if !known {
			if strings.Contains(string(name), "/") {
				continue // it has no device plugin; the scheduler alone counts it
			}
			have = resource.Quantity{}
		}
		sum := used[name]
		left := have.DeepCopy()
		left.Sub(sum)
		if left.Cmp(q) < 0 {
			return "OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
				name, amount(name, q), amount(name, sum), amount(name, have))
		}
	}
	return "", ""
}

func (k *Kubelet) forbiddenSysctl(pod *corev1.Pod) string {
	if pod.Spec.SecurityContext == nil {
		return ""
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := strings.ReplaceAll(s.Name, "/", ".")
		allowed := false
		for _, pattern := range slices.Concat(safeSysctls, k.Settings.AllowedUnsafeSysctls) {
			ok, _ := path.Match(strings.ReplaceAll(pattern, "/", "."), name)
			allowed = allowed || ok
		}
		if pod.Spec.HostNetwork && strings.HasPrefix(name, "net.") || pod.Spec.HostIPC && strings.HasPrefix(name, "kernel.") {
			allowed = false
		}
		if !allowed {
			return s.Name
		}
	}
	return ""
}

// resizeFits checks whether the node has room for a resize. It returns reason and message of the
// pending condition, or "" if there is room.
func (k *Kubelet) resizeFits(pod *corev1.Pod) (reason, message string) {
	if message := k.places.refusesResize(pod); message != "" {
		return corev1.PodReasonInfeasible, message
	}
	allocatable := k.node.Allocatable()
	for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if have, ok := allocatable[name]; ok && q.Cmp(have) > 0 {
			return corev1.PodReasonInfeasible, fmt.Sprintf("Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, amount(name, q), amount(name, have))
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if why, message := k.fits(pod); why != "" {
		return corev1.PodReasonDeferred, message
	}
	return "", ""
}

// amount formats a quantity for messages: CPU in thousandths of a core.
func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
