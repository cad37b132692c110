// Package volume binds claims to persistent volumes, attaches volumes to nodes, creates the claims
// of generic ephemeral volumes, and delays the deletion of claims, volumes and classes in use.
//
// In: PersistentVolumeClaims, PersistentVolumes, StorageClasses, VolumeAttachments, Pods, Nodes,
// CSIDrivers. Out: bindings and phases, finalizers, VolumeAttachments, the attached volumes in a
// node's status.
package volume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// ClaimProtection delays the deletion of a claim until no pod uses it.
var ClaimProtection = controller.Starter{Name: "persistentvolumeclaim-protection-controller", Account: "pvc-protection-controller", Run: runClaimProtection}

// VolumeProtection delays the deletion of a volume until it is not bound.
var VolumeProtection = controller.Starter{Name: "persistentvolume-protection-controller", Account: "pv-protection-controller", Run: runVolumeProtection}

const (
	claimFinalizer  = "kubernetes.io/pvc-protection"
	volumeFinalizer = "kubernetes.io/pv-protection"
	byClaim         = "volume-claim"
)

// claimsOf returns the keys ("namespace/name") of the claims that a pod uses, ephemeral ones
// included.
func claimsOf(p *corev1.Pod) []string {
	var out []string
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			out = append(out, p.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			out = append(out, p.Namespace+"/"+p.Name+"-"+v.Name)
		}
	}
	return out
}

func runClaimProtection(ctx context.Context, env controller.Env) error {
	claims, err := client.Open[*corev1.PersistentVolumeClaim](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open persistent volume claims: %w", err)
	}
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	pods.AddIndex(byClaim, claimsOf)
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "persistentvolumeclaim-protection-controller",
		Inputs: []controller.Input{
			controller.Self(claims),
			controller.On(pods, func(e client.TypedEvent[*corev1.Pod]) []controller.Key {
				if e.Type != client.Deleted {
					return nil
				}
				var keys []controller.Key
				for _, v := range e.Object.Spec.Volumes {
					switch {
					case v.PersistentVolumeClaim != nil:
						keys = append(keys, controller.Key{Namespace: e.Object.Namespace, Name: v.PersistentVolumeClaim.ClaimName})
					case v.Ephemeral != nil:
						keys = append(keys, controller.Key{Namespace: e.Object.Namespace, Name: e.Object.Name + "-" + v.Name})
					}
				}
				return keys
			}),
		},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			c, ok := claims.Get(key.Namespace, key.Name)
			if !ok {
				return controller.Result{}, nil
			}
			has := slices.Contains(c.Finalizers, claimFinalizer)
			switch {
			case c.DeletionTimestamp == nil && !has:
				return controller.Result{}, setFinalizers(ctx, env.Client, c, append(slices.Clone(c.Finalizers), claimFinalizer))
			case c.DeletionTimestamp != nil && has:
				// A pod without a node cannot be using the claim.
				if slices.ContainsFunc(pods.ByIndex(byClaim, key.String()), func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }) {
					return controller.Result{}, nil
				}
				used, err := usedNow(ctx, env.Client, key)
				if used || err != nil {
					return controller.Result{}, err
				}
				return controller.Result{}, setFinalizers(ctx, env.Client, c, slices.DeleteFunc(slices.Clone(c.Finalizers), func(f string) bool { return f == claimFinalizer }))
			}
			return controller.Result{}, nil
		},
	}
	return loop.Run(ctx)
}

// usedNow lists the pods from the API server: the View may lack a pod that was bound a moment ago.
func usedNow(ctx context.Context, c client.Interface, key controller.Key) (bool, error) {
	list, err := c.List(ctx, corev1.SchemeGroupVersion.WithResource("pods"), key.Namespace, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return false, fmt.Errorf("the list of pods is a %T", list)
	}
	return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Spec.NodeName != "" && slices.Contains(claimsOf(&p), key.String())
	}), nil
}

func runVolumeProtection(ctx context.Context, env controller.Env) error {
	volumes, err := client.Open[*corev1.PersistentVolume](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open persistent volumes: %w", err)
	}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:   "persistentvolume-protection-controller",
		Inputs: []controller.Input{controller.Self(volumes)},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			v, ok := volumes.Get("", key.Name)
			if !ok {
				return controller.Result{}, nil
			}
			has := slices.Contains(v.Finalizers, volumeFinalizer)
			switch {
			case v.DeletionTimestamp == nil && !has:
				return controller.Result{}, setFinalizers(ctx, env.Client, v, append(slices.Clone(v.Finalizers), volumeFinalizer))
			case v.DeletionTimestamp != nil && has && v.Status.Phase != corev1.VolumeBound:
				return controller.Result{}, setFinalizers(ctx, env.Client, v, slices.DeleteFunc(slices.Clone(v.Finalizers), func(f string) bool { return f == volumeFinalizer }))
			}
			return controller.Result{}, nil
		},
	}
	return loop.Run(ctx)
}

// setFinalizers writes the finalizers of exactly this version of the object. It updates, since the
// roles of these controllers do not allow patches.
func setFinalizers[T client.Object](ctx context.Context, c client.Interface, obj T, finalizers []string) error {
	obj = obj.DeepCopyObject().(T)
	obj.SetFinalizers(finalizers)
	_, err := client.Update(ctx, c, obj)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
