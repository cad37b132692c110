package volume

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Ephemeral creates the claims of pods' generic ephemeral volumes. A pod owns its claims, so they
// are deleted with it.
var Ephemeral = controller.Starter{Name: "ephemeral-volume-controller", EventSource: "ephemeral_volume", Run: runEphemeral}

func runEphemeral(ctx context.Context, env controller.Env) error {
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	claims, err := client.Open[*corev1.PersistentVolumeClaim](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open persistent volume claims: %w", err)
	}
	podKind := corev1.SchemeGroupVersion.WithKind("Pod")
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "ephemeral-volume-controller",
		Inputs: []controller.Input{
			controller.On(pods, func(e client.TypedEvent[*corev1.Pod]) []controller.Key {
				if e.Type == client.Added {
					for _, v := range e.Object.Spec.Volumes {
						if v.Ephemeral != nil {
							return []controller.Key{controller.KeyOf(e.Object)}
						}
					}
				}
				return nil
			}),
			controller.On(claims, func(e client.TypedEvent[*corev1.PersistentVolumeClaim]) []controller.Key {
				if e.Type != client.Deleted {
					return nil
				}
				return controller.OwnerKeys(e.Object, podKind)
			}),
		},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			p, ok := pods.Get(key.Namespace, key.Name)
			if !ok || p.DeletionTimestamp != nil || controller.PodEnded(p) {
				return controller.Result{}, nil
			}
			for _, v := range p.Spec.Volumes {
				if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
					continue
				}
				name := p.Name + "-" + v.Name
				if have, ok := claims.Get(p.Namespace, name); ok {
					if !metav1.IsControlledBy(have, p) {
						return controller.Result{}, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", p.Namespace, name, p.Namespace, p.Name)
					}
					continue
				}
				t := v.Ephemeral.VolumeClaimTemplate
				_, err := client.Create(ctx, env.Client, &corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: p.Namespace, Name: name, Labels: maps.Clone(t.Labels), Annotations: maps.Clone(t.Annotations),
						OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, podKind)},
					},
					Spec: *t.Spec.DeepCopy(),
				})
				if err != nil && !controller.NamespaceTerminating(err) && !apierrors.IsAlreadyExists(err) {
					env.Events.Eventf(p, nil, corev1.EventTypeWarning, "FailedBinding", "CreateClaim", "ephemeral volume %s: create PVC %s: %v", v.Name, name, err)
					return controller.Result{}, err
				}
			}
			return controller.Result{}, nil
		},
	}
	return loop.Run(ctx)
}
