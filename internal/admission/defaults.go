package admission

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumehelper "k8s.io/component-helpers/storage/volume"

	"github.com/knarr-project/knarr/internal/client"
)

const (
	annotationDefaultStorageClass     = "storageclass.kubernetes.io/is-default-class"
	annotationBetaDefaultStorageClass = "storageclass.beta.kubernetes.io/is-default-class"
	annotationIngressClass            = "kubernetes.io/ingress.class"
)

// defaultStorageClass sets the default class of claims without one: the newest class marked as
// default.
type defaultStorageClass struct {
	base
	classes *client.Lazy[*storagev1.StorageClass]
}

func newDefaultStorageClass(classes *client.Lazy[*storagev1.StorageClass]) Plugin {
	return defaultStorageClass{base{"DefaultStorageClass", []Operation{Create}}, classes}
}

// Admit implements Mutator.
func (p defaultStorageClass) Admit(_ context.Context, a *Attributes) error {
	claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
	if !ok || !a.is("", "persistentvolumeclaims", "") || volumehelper.PersistentVolumeClaimHasClass(claim) {
		return nil
	}
	var err error
	claim.Spec.StorageClassName, err = defaultClass(p.classes, annotationDefaultStorageClass, annotationBetaDefaultStorageClass)
	return err
}

// defaultClass returns the name of the newest class that one of the annotations marks as default;
// nil if there is none.
func defaultClass[T client.Object](classes *client.Lazy[T], marks ...string) (*string, error) {
	view, err := classes.View()
	if err != nil {
		return nil, err
	}
	var name *string
	var since metav1.Time
	for _, class := range view.List("", nil) {
		created := class.GetCreationTimestamp()
		marked := slices.ContainsFunc(marks, func(mark string) bool { return class.GetAnnotations()[mark] == "true" })
		if marked && (name == nil || since.Before(&created)) {
			found := class.GetName()
			name, since = &found, created
		}
	}
	return name, nil
}

// defaultIngressClass sets the default class of new Ingresses without one.
type defaultIngressClass struct {
	base
	classes *client.Lazy[*networkingv1.IngressClass]
}

func newDefaultIngressClass(classes *client.Lazy[*networkingv1.IngressClass]) Plugin {
	return defaultIngressClass{base{"DefaultIngressClass", []Operation{Create}}, classes}
}

// Admit implements Mutator.
func (p defaultIngressClass) Admit(_ context.Context, a *Attributes) error {
	ingress, ok := a.Object.(*networkingv1.Ingress)
	if !ok || !a.is(networkingv1.GroupName, "ingresses", "") || ingress.Spec.IngressClassName != nil {
		return nil
	}
	if _, old := ingress.Annotations[annotationIngressClass]; old {
		return nil
	}
	var err error
	ingress.Spec.IngressClassName, err = defaultClass(p.classes, networkingv1.AnnotationIsDefaultIngressClass)
	return err
}

// runtimeClass adds a RuntimeClass's overhead and scheduling constraints to its pods.
type runtimeClass struct {
	base
	classes *client.Lazy[*nodev1.RuntimeClass]
}

func newRuntimeClass(classes *client.Lazy[*nodev1.RuntimeClass]) Plugin {
	return runtimeClass{base{"RuntimeClass", []Operation{Create}}, classes}
}

// Admit implements Mutator.
func (p runtimeClass) Admit(ctx context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok {
		return nil
	}
	class, err := p.of(ctx, a, pod)
	if class == nil || err != nil {
		return err
	}
	if class.Overhead != nil {
		if pod.Spec.Overhead != nil && !equality.Semantic.DeepEqual(pod.Spec.Overhead, class.Overhead.PodFixed) {
			return a.forbid(fmt.Errorf("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
		}
		pod.Spec.Overhead = class.Overhead.DeepCopy().PodFixed
	}
	if class.Scheduling == nil {
		return nil
	}
	for key, value := range class.Scheduling.NodeSelector {
		if have, ok := pod.Spec.NodeSelector[key]; ok && have != value {
			return a.forbid(fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, have))
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	for _, t := range class.Scheduling.Tolerations {
		if !tolerates(pod.Spec.Tolerations, t) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
	return nil
}

func tolerates(list []corev1.Toleration, t corev1.Toleration) bool {
	for _, have := range list {
		if equality.Semantic.DeepEqual(have, t) {
			return true
		}
	}
	return false
}

// Validate implements Validator.
func (p runtimeClass) Validate(ctx context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok {
		return nil
	}
	class, err := p.of(ctx, a, pod)
	if err != nil {
		return err
	}
	switch {
	case class != nil && class.Overhead != nil:
		if !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return a.forbid(fmt.Errorf("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
		}
	case pod.Spec.Overhead != nil:
		return a.forbid(fmt.Errorf("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
	}
	return nil
}

func (p runtimeClass) of(ctx context.Context, a *Attributes, pod *corev1.Pod) (*nodev1.RuntimeClass, error) {
	if pod.Spec.RuntimeClassName == nil {
		return nil, nil
	}
	class, err := p.classes.Find(ctx, "", *pod.Spec.RuntimeClassName)
	if apierrors.IsNotFound(err) {
		return nil, a.forbid(fmt.Errorf("pod rejected: RuntimeClass %q not found", *pod.Spec.RuntimeClassName))
	}
	return class, err
}

// storageInUse adds finalizers that keep claims, volumes and attributes classes while they are in
// use.
type storageInUse struct{ base }

func newStorageInUse() Plugin {
	return storageInUse{base{"StorageObjectInUseProtection", []Operation{Create}}}
}

// Admit implements Mutator.
func (storageInUse) Admit(_ context.Context, a *Attributes) error {
	switch {
	case a.is("", "persistentvolumeclaims", ""):
		addFinalizer(a.Object, "kubernetes.io/pvc-protection")
	case a.is("", "persistentvolumes", ""):
		addFinalizer(a.Object, "kubernetes.io/pv-protection")
	case a.is(storagev1.GroupName, "volumeattributesclasses", ""):
		addFinalizer(a.Object, "kubernetes.io/vac-protection")
	}
	return nil
}

func addFinalizer(obj any, finalizer string) {
	o, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	for _, f := range o.GetFinalizers() {
		if f == finalizer {
			return
		}
	}
	o.SetFinalizers(append(o.GetFinalizers(), finalizer))
}

// claimResize lets a claim grow only if it is bound and its class allows expansion.
type claimResize struct {
	base
	classes *client.Lazy[*storagev1.StorageClass]
}

func newClaimResize(classes *client.Lazy[*storagev1.StorageClass]) Plugin {
	return claimResize{base{"PersistentVolumeClaimResize", []Operation{Update}}, classes}
}

// Validate implements Validator.
func (p claimResize) Validate(ctx context.Context, a *Attributes) error {
	claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
	old, ok2 := a.OldObject.(*corev1.PersistentVolumeClaim)
	if !ok || !ok2 || !a.is("", "persistentvolumeclaims", "") {
		return nil
	}
	before, after := old.Spec.Resources.Requests[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if after.Cmp(before) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		return a.forbid(fmt.Errorf("only bound persistent volume claims can be expanded"))
	}
	name := volumehelper.GetPersistentVolumeClaimClass(claim)
	if name != "" {
		if class, err := p.classes.Find(ctx, "", name); err == nil && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion {
			return nil
		}
	}
	return a.forbid(fmt.Errorf("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
}
