package kubelet

import (
	"context"
	"sort"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/kubelet/eviction"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

func (k *Kubelet) newEvictions() (*eviction.Manager, error) {
	thresholds, err := eviction.Parse(k.Settings.EvictionHard, nil)
	if err != nil {
		return nil, err
	}
	soft, err := eviction.Parse(k.Settings.EvictionSoft, k.Settings.EvictionSoftGracePeriod)
	if err != nil {
		return nil, err
	}
	thresholds = append(thresholds, soft...)
	if err := eviction.SetReclaim(thresholds, k.Settings.EvictionMinimumReclaim); err != nil {
		return nil, err
	}
	return &eviction.Manager{
		Thresholds: thresholds, Transition: k.Settings.EvictionPressureTransitionPeriod.Duration, MaxGrace: int64(k.Settings.EvictionMaxPodGracePeriod),
		Node: k.stats.Node, Summary: k.stats.Summary, Pods: k.runningPods, Evict: k.evict, Evicted: k.metrics.Evicted,
		Reclaim: k.imageGC.All, Changed: func() { k.node.Kick() }, Now: k.Now, Log: k.log,
	}, nil
}

// runningPods are the pods that an eviction can end.
func (k *Kubelet) runningPods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range k.Workers() {
		if v := w.View(); v.Stage == worker.Syncing && v.Status.Phase != corev1.PodSucceeded && v.Status.Phase != corev1.PodFailed {
			out = append(out, v.Pod)
		}
	}
	return out
}

func (k *Kubelet) evict(pod *corev1.Pod, message string, grace int64) {
	k.Events.Eventf(&corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, nil,
		corev1.EventTypeWarning, "Evicted", "Evicting", "%s", message)
	if w := k.worker(pod.UID); w != nil {
		w.Fail(worker.Failure{Cause: "Evicted", Reason: "Evicted", Message: message, Grace: &grace})
	}
}

// preempt admits a critical pod. It makes room by ending as few non-critical pods as possible,
// those of the lowest priority first.
func (k *Kubelet) preempt(pod *corev1.Pod) bool {
	candidates := k.runningPods()
	sort.SliceStable(candidates, func(i, j int) bool {
		return priority(candidates[i]) < priority(candidates[j])
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	var victims []*corev1.Pod
	for _, c := range candidates {
		if eviction.Critical(c) || k.admitted[c.UID] == nil {
			continue
		}
		delete(k.admitted, c.UID)
		victims = append(victims, c)
		if reason, _ := k.fits(pod); reason == "" {
			break
		}
	}
	if reason, _ := k.fits(pod); reason != "" {
		for _, v := range victims {
			k.admitted[v.UID] = v
		}
		return false
	}
	k.admitted[pod.UID] = pod
	for _, v := range victims {
		grace := int64(1)
		k.metrics.Preempted("resources")
		if w := k.workers[v.UID]; w != nil {
			w.Fail(worker.Failure{Cause: "Preempting", Reason: "Preempting", Message: "Preempted in order to admit critical pod", Grace: &grace})
		}
	}
	return true
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// imagesInUse are the images of all containers of the runtime, running or not.
func (k *Kubelet) imagesInUse(ctx context.Context) (map[string]bool, error) {
	list, err := k.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, c := range list {
		out[c.ImageRef], out[c.ImageId], out[c.GetImage().GetImage()] = true, true, true
	}
	for _, w := range k.Workers() {
		pod := w.View().Pod
		for i := range pod.Spec.Volumes {
			if image := pod.Spec.Volumes[i].Image; image != nil {
				out[image.Reference] = true
			}
		}
	}
	delete(out, "")
	return out, nil
}
