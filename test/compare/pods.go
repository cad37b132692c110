package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

// hollowNodes is the number of nodes without an agent that pods are scheduled on.
const hollowNodes = 1000

func hollowName(i int) string { return fmt.Sprintf("hollow-%04d", i) }

// scheduling measures 5,000 pods from the first create to the last binding.
func scheduling(ctx context.Context, o *options, c *clients, f figures, control []*process) error {
	pods := int(5000 * o.scale)
	if err := makeNodes(ctx, c); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	w, err := c.set.CoreV1().Pods(space).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	var bound atomic.Int64
	seen := map[string]bool{}
	go func() {
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted && p.Spec.NodeName != "" && !seen[p.Name] {
				seen[p.Name] = true
				bound.Add(1)
			}
		}
	}()
	kept, err := o.keepProfiles(ctx, c, "schedule")
	if err != nil {
		return err
	}
	spent := stopwatch(control)
	began := time.Now()
	if _, err := c.each(ctx, pods, 64, func(w *wire, i int) error {
		p := schedulablePod(1000000 + i)
		p.Spec.NodeSelector = map[string]string{"hollow": "yes"}
		return w.create(podsPath, p, "Pod")
	}); err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	if err := until(ctx, 180*time.Second, "all pods bound", func() bool { return bound.Load() >= int64(pods) }); err != nil {
		return fmt.Errorf("%w (%d of %d)", err, bound.Load(), pods)
	}
	rate := float64(pods) / time.Since(began).Seconds()
	serving, loading := spent()
	f["schedule"] = figure{value: rate, note: fmt.Sprintf("CPU per pod: server %.2f ms, load %.2f ms", serving.Seconds()*1e3/float64(pods), loading.Seconds()*1e3/float64(pods))}
	anon, rss := memory(tree(control))
	f["churn-rss"] = figure{value: rss, note: fmt.Sprintf("RssAnon %.0f MB", anon)}
	return kept()
}

// makeNodes creates the nodes and waits until they accept pods: the node lifecycle controller
// removes the taints of nodes that were not ready.
func makeNodes(ctx context.Context, c *clients) error {
	if _, err := c.each(ctx, hollowNodes, 32, func(w *wire, i int) error {
		name := hollowName(i)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprintf("z%d", i%3), "hollow": "yes"}}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: quantity("32"), corev1.ResourceMemory: quantity("64Gi"), corev1.ResourcePods: quantity("110")}
		n.Status.Capacity = n.Status.Allocatable
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Hollow", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
		return w.create("/api/v1/nodes", n, "Node")
	}); err != nil {
		return err
	}
	return until(ctx, 60*time.Second, "nodes without taints", func() bool {
		list, err := c.set.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "hollow"})
		if err != nil {
			return false
		}
		for _, n := range list.Items {
			if len(n.Spec.Taints) > 0 {
				return false
			}
		}
		return true
	})
}

// runningPods measures real pods: one at a time, then 50 at once.
func runningPods(ctx context.Context, c *clients, f figures) error {
	set := c.set
	var ready, gone time.Duration
	const rounds = 5
	for i := range rounds {
		r, g, err := onePod(ctx, set, fmt.Sprintf("one-%d", i))
		if err != nil {
			return err
		}
		ready, gone = ready+r, gone+g
	}
	f["pod-ready"] = figure{value: float64(ready.Milliseconds()) / rounds}
	f["pod-gone"] = figure{value: float64(gone.Milliseconds()) / rounds}

	began := time.Now()
	if err := podsAtOnce(ctx, set, "fifty", 50); err != nil {
		return err
	}
	f["fifty"] = figure{value: time.Since(began).Seconds()}
	return nil
}

// podsAtOnce creates pods at once and waits until all are Ready.
func podsAtOnce(ctx context.Context, set *kubernetes.Clientset, name string, count int) error {
	var wg sync.WaitGroup
	errs := make(chan error, count)
	for i := range count {
		wg.Go(func() {
			p := runningPod(fmt.Sprintf("%s-%d", name, i))
			if _, err := set.CoreV1().Pods(space).Create(ctx, p, metav1.CreateOptions{}); err != nil {
				errs <- err
				return
			}
			errs <- waitPod(ctx, set, p.Name, isReady)
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return fmt.Errorf("%d pods: %w", count, err)
		}
	}
	return nil
}

// fullNode is the number of pods that a node takes by default.
const fullNode = 110

// idlePods fills the node and measures what its idle pods cost.
func idlePods(ctx context.Context, c *clients, f figures) error {
	list, err := c.set.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName})
	if err != nil {
		return err
	}
	if err := podsAtOnce(ctx, c.set, "idle", fullNode-len(list.Items)); err != nil {
		return err
	}
	if err := pause(ctx, 60*time.Second); err != nil {
		return err
	}
	before, at := processor(everything()), time.Now()
	if err := pause(ctx, 30*time.Second); err != nil {
		return err
	}
	f["pods-cpu"] = figure{value: 100 * (processor(everything()) - before).Seconds() / time.Since(at).Seconds()}
	anon, _ := memory(everything(), "pause")
	f["pods-anon"] = figure{value: anon}
	const rounds = 5
	var gone time.Duration
	for i := range rounds {
		took, err := deletePod(ctx, c.set, fmt.Sprintf("idle-%d", i))
		if err != nil {
			return err
		}
		gone += took
	}
	f["idle-gone"] = figure{value: float64(gone.Milliseconds()) / rounds}
	return nil
}

func runningPod(name string) *corev1.Pod {
	p := schedulablePod(0)
	p.Name = name
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeName}
	grace := int64(30)
	p.Spec.TerminationGracePeriodSeconds = &grace
	return p
}

func onePod(ctx context.Context, set *kubernetes.Clientset, name string) (ready, gone time.Duration, err error) {
	began := time.Now()
	if _, err := set.CoreV1().Pods(space).Create(ctx, runningPod(name), metav1.CreateOptions{}); err != nil {
		return 0, 0, err
	}
	if err := waitPod(ctx, set, name, isReady); err != nil {
		return 0, 0, err
	}
	ready = time.Since(began)
	gone, err = deletePod(ctx, set, name)
	return ready, gone, err
}

// deletePod returns how long the pod's end took.
func deletePod(ctx context.Context, set *kubernetes.Clientset, name string) (time.Duration, error) {
	began := time.Now()
	if err := set.CoreV1().Pods(space).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return 0, err
	}
	err := waitPod(ctx, set, name, func(p *corev1.Pod) bool { return p == nil })
	return time.Since(began), err
}

func isReady(p *corev1.Pod) bool {
	if p == nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// waitPod watches one pod until wanted accepts it; nil means that it is gone.
func waitPod(ctx context.Context, set *kubernetes.Clientset, name string, wanted func(*corev1.Pod) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	w, err := set.CoreV1().Pods(space).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	defer w.Stop()
	// Without a resourceVersion the watch begins with the existing pod. If the pod is already gone,
	// it sends nothing.
	if wanted(nil) {
		if list, err := set.CoreV1().Pods(space).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name}); err == nil && len(list.Items) == 0 {
			return nil
		}
	}
	for e := range w.ResultChan() {
		p, _ := e.Object.(*corev1.Pod)
		if e.Type == watch.Deleted {
			p = nil
		}
		if wanted(p) {
			return nil
		}
	}
	return fmt.Errorf("pod %s: not as wanted within 90 s", name)
}
