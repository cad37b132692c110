package architecture

import (
	"context"
	"maps"
	"reflect"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// inputs returns what leads to which keys.
func (a *architect) inputs() []controller.Input {
	all := func(client.Event) []controller.Key { return []controller.Key{everything} }
	return []controller.Input{
		{View: a.components, Keys: a.declared},
		{View: a.systems, Keys: a.declared},
		{View: a.traffics, Keys: func(client.Event) []controller.Key {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.unread = true
			return []controller.Key{everything}
		}},
		controller.On(a.pods, func(e client.TypedEvent[*corev1.Pod]) []controller.Key {
			if e.Type == client.Modified && !podChanged(e.Old, e.Object) {
				return nil
			}
			return controller.States(func(p *corev1.Pod) []controller.Key { return a.selecting(p.Namespace, p.Labels) })(e)
		}),
		workload(a, a.deployments, func(d *appsv1.Deployment) template { return template{d.Spec.Template.Labels, d.Spec.Replicas} }),
		workload(a, a.stateful, func(s *appsv1.StatefulSet) template { return template{s.Spec.Template.Labels, s.Spec.Replicas} }),
		workload(a, a.daemons, func(d *appsv1.DaemonSet) template {
			return template{d.Spec.Template.Labels, &d.Status.DesiredNumberScheduled}
		}),
		workload(a, a.sets, func(s *appsv1.ReplicaSet) template { return template{s.Spec.Template.Labels, s.Spec.Replicas} }),
		workload(a, a.jobs, func(j *batchv1.Job) template { return template{j.Spec.Template.Labels, &j.Status.Active} }),
		workload(a, a.cronJobs, func(c *batchv1.CronJob) template {
			return template{c.Spec.JobTemplate.Spec.Template.Labels, nil}
		}),
		controller.On(a.services, func(e client.TypedEvent[*corev1.Service]) []controller.Key {
			if e.Type == client.Modified {
				return nil // only its existence counts
			}
			var keys []controller.Key
			for _, obj := range a.components.List(e.Object.Namespace, nil) {
				keys = append(keys, controller.KeyOf(obj))
			}
			return keys
		}),
		controller.On(a.policies, func(e client.TypedEvent[*networkingv1.NetworkPolicy]) []controller.Key {
			if name := e.Object.Annotations[architecture.ComponentAnnotation]; name != "" {
				return []controller.Key{{Namespace: e.Object.Namespace, Name: name}}
			}
			return nil
		}),
		controller.On(a.slices, func(e client.TypedEvent[*discoveryv1.EndpointSlice]) []controller.Key {
			if e.Object.Labels[discoveryv1.LabelServiceName] != apiServers {
				return nil
			}
			return []controller.Key{everything}
		}),
		{View: a.roles.View, Keys: all},
		{View: a.bindings.View, Keys: all},
		{View: a.clusterRole.View, Keys: all},
		{View: a.clusterWide.View, Keys: all},
	}
}

// declared maps events of Components and Systems. A change of a declaration concerns all of them; a
// change of a Component's status its Systems.
func (a *architect) declared(e client.Event) []controller.Key {
	keys := []controller.Key{controller.KeyOf(e.Object)}
	if e.Type == client.Modified && sameDeclaration(e.Old, e.Object) {
		for _, system := range a.current().SystemsOf(architecture.ComponentReference(keys[0])) {
			keys = append(keys, controller.Key{Name: system})
		}
		return keys
	}
	a.mu.Lock()
	a.stale = true
	a.mu.Unlock()
	return append(keys, everything)
}

func sameDeclaration(a, b any) bool {
	before, ok := a.(*unstructured.Unstructured)
	after, also := b.(*unstructured.Unstructured)
	return ok && also && before.GetUID() == after.GetUID() && before.GetGeneration() == after.GetGeneration() &&
		maps.Equal(before.GetLabels(), after.GetLabels()) && (before.GetDeletionTimestamp() == nil) == (after.GetDeletionTimestamp() == nil)
}

// selecting returns the Components that select pods with these labels, and those that require them.
func (a *architect) selecting(namespace string, set map[string]string) (keys []controller.Key) {
	m := a.current()
	for _, ref := range m.Of(namespace, set) {
		keys = append(keys, controller.Key(ref))
		for _, requirer := range m.RequirersOf(ref) {
			keys = append(keys, controller.Key(requirer))
		}
	}
	return keys
}

func podChanged(a, b *corev1.Pod) bool {
	return controller.PodReady(a) != controller.PodReady(b) || a.Status.Phase != b.Status.Phase ||
		(a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) || !maps.Equal(a.Labels, b.Labels)
}

// template is the part of a workload that the controller looks at.
type template struct {
	labels  map[string]string
	desired *int32
}

// workload is the input of a kind that makes pods.
func workload[T client.Object](a *architect, view client.ViewOf[T], of func(T) template) controller.Input {
	return controller.On(view, func(e client.TypedEvent[T]) []controller.Key {
		if e.Type == client.Modified && reflect.DeepEqual(of(e.Old), of(e.Object)) {
			return nil
		}
		return controller.States(func(w T) []controller.Key { return a.selecting(w.GetNamespace(), of(w).labels) })(e)
	})
}

// spread queues all Components and Systems when something concerns all of them.
func (a *architect) spread(ctx context.Context, add func(controller.Key, time.Duration)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
		}
		for _, view := range []client.View{a.components, a.systems} {
			for _, obj := range view.List("", nil) {
				if m, err := meta.Accessor(obj); err == nil {
					add(controller.Key{Namespace: m.GetNamespace(), Name: m.GetName()}, 0)
				}
			}
		}
	}
}
