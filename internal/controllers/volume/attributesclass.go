package volume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// ClassProtection delays the deletion of a VolumeAttributesClass until no volume has, or will have,
// its attributes (KEP-3751).
var ClassProtection = controller.Starter{
	Name: "volumeattributesclass-protection-controller", Account: "volumeattributesclass-protection-controller", Run: runClassProtection,
}

const (
	classFinalizer    = "kubernetes.io/vac-protection"
	byAttributesClass = "attributes-class"
)

// classesOfClaim returns the names of a claim's current, wanted and target classes.
func classesOfClaim(c *corev1.PersistentVolumeClaim) []string {
	names := classNames(c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName)
	if m := c.Status.ModifyVolumeStatus; m != nil {
		names = append(names, classNames(&m.TargetVolumeAttributesClassName)...)
	}
	return names
}

func classesOfVolume(v *corev1.PersistentVolume) []string {
	return classNames(v.Spec.VolumeAttributesClassName)
}

func classNames(candidates ...*string) []string {
	var names []string
	for _, name := range candidates {
		if name != nil && *name != "" && !slices.Contains(names, *name) {
			names = append(names, *name)
		}
	}
	return names
}

func runClassProtection(ctx context.Context, env controller.Env) error {
	classes, err := client.Open[*storagev1.VolumeAttributesClass](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open volume attributes classes: %w", err)
	}
	claims, err := client.Open[*corev1.PersistentVolumeClaim](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open persistent volume claims: %w", err)
	}
	volumes, err := client.Open[*corev1.PersistentVolume](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open persistent volumes: %w", err)
	}
	claims.AddIndex(byAttributesClass, classesOfClaim)
	volumes.AddIndex(byAttributesClass, classesOfVolume)
	// After any change, check all classes that are being deleted: there are few of them.
	leaving := func() []controller.Key {
		var keys []controller.Key
		for _, c := range classes.List("", nil) {
			if c.DeletionTimestamp != nil {
				keys = append(keys, controller.KeyOf(c))
			}
		}
		return keys
	}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "volumeattributesclass-protection-controller",
		Inputs: []controller.Input{
			controller.Self(classes),
			controller.On(claims, func(client.TypedEvent[*corev1.PersistentVolumeClaim]) []controller.Key { return leaving() }),
			controller.On(volumes, func(client.TypedEvent[*corev1.PersistentVolume]) []controller.Key { return leaving() }),
		},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			c, ok := classes.Get("", key.Name)
			if !ok {
				return controller.Result{}, nil
			}
			has := slices.Contains(c.Finalizers, classFinalizer)
			used := len(claims.ByIndex(byAttributesClass, key.Name)) > 0 || len(volumes.ByIndex(byAttributesClass, key.Name)) > 0
			switch {
			case c.DeletionTimestamp == nil && !has:
				return controller.Result{}, setFinalizers(ctx, env.Client, c, append(slices.Clone(c.Finalizers), classFinalizer))
			case c.DeletionTimestamp != nil && has && !used:
				return controller.Result{}, setFinalizers(ctx, env.Client, c, slices.DeleteFunc(slices.Clone(c.Finalizers), func(f string) bool { return f == classFinalizer }))
			}
			return controller.Result{}, nil
		},
	}
	return loop.Run(ctx)
}
