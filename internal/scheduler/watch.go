package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// watch opens the Views and posts their events to the inbox. When it returns, all nodes and bound
// pods have been posted.
func (s *Scheduler) watch(ctx context.Context) (done []<-chan struct{}, err error) {
	namespaces, err := client.Open[*corev1.Namespace](ctx, s.client, client.Scope{})
	if err != nil {
		return nil, err
	}
	selectors, err := openSelectors(ctx, s.client)
	if err != nil {
		return nil, err
	}
	if s.budgets, err = client.Open[*policyv1.PodDisruptionBudget](ctx, s.client, client.Scope{}); err != nil {
		return nil, err
	}
	s.cluster = newCluster(func(name string) labels.Set {
		if ns, ok := namespaces.Get("", name); ok {
			return ns.Labels
		}
		return nil
	}, selectors.of)

	nodes, err := client.Open[*corev1.Node](ctx, s.client, client.Scope{})
	if err != nil {
		return nil, err
	}
	pods, err := client.Open[*corev1.Pod](ctx, s.client, client.Scope{})
	if err != nil {
		return nil, err
	}
	s.pods = pods
	if s.groups != nil {
		groupsDone, err := s.openGroups(ctx)
		if err != nil {
			return nil, err
		}
		done = append(done, groupsDone)
	}
	s.storage = newStorage(ctx, s.client, s.wakeMatching)
	s.allocator.client, s.allocator.devices = s.client, newDevices(ctx, s.client, s.wakeMatching, s.wakeUsers)
	s.cluster.storage, s.cluster.devices = s.storage.use, s.allocator.devices.use
	*s.volumes = volumeBinder{
		client: s.client, storage: s.storage,
		pods:  pods.Get,
		nodes: func(name string) (*corev1.Node, bool) { return nodes.Get("", name) },
	}
	nodesSynced, nodesDone := nodes.Subscribe(ctx, func(e client.TypedEvent[*corev1.Node]) {
		s.post(func(now time.Time) {
			s.queue.cause = e.Revision
			if e.Type == client.Deleted {
				s.cluster.removeNode(e.Object.Name)
				s.queue.wakeFor(&framework.Change{Events: framework.NodeDeleted, Old: e.Object}, nil, now)
			} else if events := s.cluster.setNode(e.Object); events != 0 {
				change := &framework.Change{Events: events, New: e.Object}
				if e.Old != nil && events&framework.NodeAdded == 0 {
					change.Old = e.Old
				}
				s.queue.wakeFor(change, nil, now)
			}
		})
	})
	podsSynced, podsDone := pods.Subscribe(ctx, func(e client.TypedEvent[*corev1.Pod]) {
		s.post(func(now time.Time) {
			s.queue.cause = e.Revision
			s.onPod(e.Old, e.Object, e.Type == client.Deleted, now)
		})
	})
	_, namespacesDone := namespaces.Subscribe(ctx, func(e client.TypedEvent[*corev1.Namespace]) {
		relabeled := e.Old != nil && !maps.Equal(e.Old.Labels, e.Object.Labels)
		s.post(func(now time.Time) {
			s.cluster.namespacesChanged()
			if relabeled {
				s.queue.wake(framework.PodAssigned, now)
			}
		})
	})
	done = append(done, nodesDone, podsDone, namespacesDone)
	for _, synced := range []<-chan struct{}{nodesSynced, podsSynced} {
		select {
		case <-synced:
		case <-ctx.Done():
			return done, nil
		}
	}
	return done, nil
}

// bySelector is an index of Services by one label of their selectors, the one with the first name.
// A Service that selects a pod is found by one of the pod's labels.
const bySelector = "scheduler-selector"

func selectorIndex(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// workloads are the Views that tell to which group a pod belongs, for default spreading.
type workloads struct {
	services     client.ViewOf[*corev1.Service]
	replicaSets  client.ViewOf[*appsv1.ReplicaSet]
	statefulSets client.ViewOf[*appsv1.StatefulSet]
	controllers  client.ViewOf[*corev1.ReplicationController]
}

func openSelectors(ctx context.Context, c client.Interface) (w workloads, err error) {
	if w.services, err = client.Open[*corev1.Service](ctx, c, client.Scope{}); err != nil {
		return w, err
	}
	w.services.AddIndex(bySelector, func(svc *corev1.Service) []string {
		if len(svc.Spec.Selector) == 0 {
			return nil
		}
		key := slices.Min(slices.Collect(maps.Keys(svc.Spec.Selector)))
		return []string{selectorIndex(svc.Namespace, key, svc.Spec.Selector[key])}
	})
	if w.replicaSets, err = client.Open[*appsv1.ReplicaSet](ctx, c, client.Scope{}); err != nil {
		return w, err
	}
	if w.statefulSets, err = client.Open[*appsv1.StatefulSet](ctx, c, client.Scope{}); err != nil {
		return w, err
	}
	w.controllers, err = client.Open[*corev1.ReplicationController](ctx, c, client.Scope{})
	return w, err
}

// of joins the selectors of the pod's Services and its controller; nil if there are none.
func (w workloads) of(pod *corev1.Pod) labels.Selector {
	var all labels.Requirements
	for _, key := range slices.Sorted(maps.Keys(pod.Labels)) {
		for _, svc := range w.services.ByIndex(bySelector, selectorIndex(pod.Namespace, key, pod.Labels[key])) {
			if containsAll(pod.Labels, svc.Spec.Selector) {
				requirements, _ := labels.SelectorFromValidatedSet(svc.Spec.Selector).Requirements()
				all = append(all, requirements...)
			}
		}
	}
	if sel := w.ofController(pod); sel != nil {
		requirements, _ := sel.Requirements()
		all = append(all, requirements...)
	}
	if len(all) == 0 {
		return nil
	}
	return labels.NewSelector().Add(all...)
}

func containsAll(have, want map[string]string) bool {
	for k, v := range want {
		if is, ok := have[k]; !ok || is != v {
			return false
		}
	}
	return true
}

func (w workloads) ofController(pod *corev1.Pod) labels.Selector {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return nil
	}
	var selector *metav1.LabelSelector
	switch owner.Kind {
	case "ReplicaSet":
		if rs, ok := w.replicaSets.Get(pod.Namespace, owner.Name); ok {
			selector = rs.Spec.Selector
		}
	case "StatefulSet":
		if ss, ok := w.statefulSets.Get(pod.Namespace, owner.Name); ok {
			selector = ss.Spec.Selector
		}
	case "ReplicationController":
		if rc, ok := w.controllers.Get(pod.Namespace, owner.Name); ok {
			return labels.SelectorFromSet(rc.Spec.Selector)
		}
	}
	if selector == nil {
		return nil
	}
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil
	}
	return compiled
}
