// Package scheduling delays the deletion of PodGroups in use.
//
// In: PodGroups, Pods. Out: finalizers of PodGroups.
package scheduling

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// PodGroupProtection removes the finalizer of a PodGroup that is being deleted when none of its
// pods is left. The admission plugin of the same name adds the finalizer.
var PodGroupProtection = controller.Starter{Name: "podgroup-protection-controller", Gate: "GenericWorkload", Run: runPodGroupProtection}

const (
	finalizer = "scheduling.k8s.io/podgroup-protection"
	byGroup   = "scheduling-group"
)

// groupOf returns the key of the pod's group.
func groupOf(p *corev1.Pod) (controller.Key, bool) {
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return controller.Key{Namespace: p.Namespace, Name: *g.PodGroupName}, true
	}
	return controller.Key{}, false
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func runPodGroupProtection(ctx context.Context, env controller.Env) error {
	groups, err := client.Open[*schedulingv1alpha2.PodGroup](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pod groups: %w", err)
	}
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	pods.AddIndex(byGroup, func(p *corev1.Pod) []string {
		if key, ok := groupOf(p); ok && !ended(p) {
			return []string{key.String()}
		}
		return nil
	})
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "podgroup-protection-controller",
		Inputs: []controller.Input{
			controller.Self(groups),
			controller.On(pods, func(e client.TypedEvent[*corev1.Pod]) []controller.Key {
				if key, ok := groupOf(e.Object); ok && (e.Type == client.Deleted || ended(e.Object)) {
					return []controller.Key{key}
				}
				return nil
			}),
		},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			g, ok := groups.Get(key.Namespace, key.Name)
			if !ok || g.DeletionTimestamp == nil || !slices.Contains(g.Finalizers, finalizer) || len(pods.ByIndex(byGroup, key.String())) > 0 {
				return controller.Result{}, nil
			}
			g = g.DeepCopy()
			g.Finalizers = slices.DeleteFunc(g.Finalizers, func(f string) bool { return f == finalizer })
			_, err := client.Update(ctx, env.Client, g)
			return controller.Result{}, err
		},
	}
	return loop.Run(ctx)
}
