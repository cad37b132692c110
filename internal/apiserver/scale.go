package apiserver

import (
	"context"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/resource"
)

// newScales returns an endpoint that encodes Scales. They are read and written through their own
// kinds.
func newScales(s *shared) *endpoint {
	kind := &api.Kind{Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Resource: "scales", Namespaced: true, Object: &autoscalingv1.Scale{}}
	return newEndpoint(&registry{shared: s, kind: kind, hub: kind.Kind, resource: kind.GroupResource(), strategy: resource.Scales}, kind.Kind.Version)
}

// scaleOf returns the Scale of an object of the endpoint's kind.
func (e *endpoint) scaleOf(obj runtime.Object) (*autoscalingv1.Scale, error) {
	if e.custom == nil {
		return scaleOf(obj)
	}
	s, _, err := e.custom.Scale(obj.(*unstructured.Unstructured))
	return s, err
}

// scaleOf returns the Scale of a workload.
func scaleOf(obj runtime.Object) (*autoscalingv1.Scale, error) {
	meta := accessor(obj)
	s := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: meta.GetName(), Namespace: meta.GetNamespace(), UID: meta.GetUID(),
		ResourceVersion: meta.GetResourceVersion(), CreationTimestamp: meta.GetCreationTimestamp()}}
	var selector *metav1.LabelSelector
	replicas := replicasOf(obj)
	switch o := obj.(type) {
	case *appsv1.Deployment:
		selector, s.Status.Replicas = o.Spec.Selector, o.Status.Replicas
	case *appsv1.ReplicaSet:
		selector, s.Status.Replicas = o.Spec.Selector, o.Status.Replicas
	case *appsv1.StatefulSet:
		selector, s.Status.Replicas = o.Spec.Selector, o.Status.Replicas
	case *corev1.ReplicationController:
		s.Status.Replicas, s.Status.Selector = o.Status.Replicas, labels.Set(o.Spec.Selector).String()
	}
	if selector != nil {
		sel, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return nil, err
		}
		s.Status.Selector = sel.String()
	}
	if replicas != nil && *replicas != nil {
		s.Spec.Replicas = **replicas
	}
	return s, nil
}

// replicasOf returns the address of a workload's replicas field; nil for other kinds.
func replicasOf(obj runtime.Object) **int32 {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Replicas
	case *appsv1.ReplicaSet:
		return &o.Spec.Replicas
	case *appsv1.StatefulSet:
		return &o.Spec.Replicas
	case *corev1.ReplicationController:
		return &o.Spec.Replicas
	}
	return nil
}

func (op *operation) getScale(ctx context.Context, opts *metav1.GetOptions) (runtime.Object, error) {
	entry, err := op.get(ctx, opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	obj, err := op.endpoint.objectOf(entry)
	if err != nil {
		return nil, err
	}
	if custom := op.endpoint.custom; custom != nil {
		scale, found, err := custom.Scale(obj.(*unstructured.Unstructured))
		if err == nil && !found {
			err = custom.ErrNoReplicas()
		}
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return scale, nil
	}
	return scaleOf(obj)
}

// setReplicas sets the object's wanted number of replicas.
func (e *endpoint) setReplicas(obj runtime.Object, n int32) error {
	if e.custom != nil {
		return e.custom.SetReplicas(obj.(*unstructured.Unstructured), n)
	}
	*replicasOf(obj) = &n
	return nil
}

func (op *operation) replaceScale(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest("expected input object type to be Scale")
	}
	if err := op.checkNames(scale); err != nil {
		return nil, err
	}
	scale.Namespace = op.namespace // which a body may omit
	return op.updateScale(ctx, op.trackedScale(func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error) { return scale, nil }))
}

func (op *operation) patchScale(ctx context.Context, p patchRequest) (runtime.Object, error) {
	if p.kind == types.ApplyYAMLPatchType {
		return op.updateScale(ctx, func(old *autoscalingv1.Scale) (*autoscalingv1.Scale, error) { return op.applyScale(old, p) })
	}
	return op.updateScale(ctx, op.trackedScale(func(old *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		obj, err := op.patchVersioned(old, op.gvk, p)
		if err != nil {
			return nil, err
		}
		scale := obj.(*autoscalingv1.Scale)
		return scale, op.checkNames(scale)
	}))
}

func (op *operation) applyScale(old *autoscalingv1.Scale, p patchRequest) (*autoscalingv1.Scale, error) {
	a, err := decodeApplied(p.data)
	if err != nil {
		return nil, err
	}
	if gvk := a.GroupVersionKind(); gvk != op.gvk {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid object type: %v", gvk))
	}
	m, err := scaleManager()
	if err != nil {
		return nil, err
	}
	obj, err := m.Apply(old.DeepCopy(), a.Unstructured, op.fieldManager, p.force)
	if err != nil {
		return nil, err
	}
	clearKind(obj)
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, fmt.Errorf("apply gave a %T where a Scale was expected", obj)
	}
	return scale, op.checkNames(scale)
}

// scaleManager tracks the fields of Scales; managedfields.ScaleHandler maps their owners to those
// of the workload.
var scaleManager = sync.OnceValues(func() (fieldManager, error) {
	gvk := autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	return managedfields.NewDefaultFieldManager(typeConverterFor(gvk), objectConvertor{hub: gvk, served: gvk}, noDefaults{}, api.Scheme, gvk, gvk.GroupVersion(), "scale", nil)
})

type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// scaleHandler translates ownership between a workload and its Scale.
func (op *operation) scaleHandler(obj runtime.Object) *managedfields.ScaleHandler {
	gv := op.endpoint.gvk.GroupVersion()
	if op.endpoint.custom != nil {
		return managedfields.NewScaleHandler(accessor(obj).GetManagedFields(), gv, op.endpoint.custom.Definition().ReplicasPaths())
	}
	replicas := fieldpath.MakePathOrDie("spec", "replicas")
	return managedfields.NewScaleHandler(accessor(obj).GetManagedFields(), gv, managedfields.ResourcePathMappings{gv.String(): replicas})
}

// updateScale sets a workload's replicas through its Scale.
func (op *operation) updateScale(ctx context.Context, fn func(old *autoscalingv1.Scale) (*autoscalingv1.Scale, error)) (runtime.Object, error) {
	out, _, err := op.update(ctx, false, func(ctx context.Context, old runtime.Object) (runtime.Object, error) {
		before, err := op.endpoint.scaleOf(old)
		if err != nil {
			return nil, err
		}
		handler := op.scaleHandler(old)
		if before.ManagedFields, err = handler.ToSubresource(); err != nil {
			return nil, err
		}
		scale, err := fn(before)
		if err != nil {
			return nil, err
		}
		if err := op.admit(ctx, op.attributes(admission.Update, scale, before)); err != nil {
			return nil, err
		}
		if err := op.checkScale(scale, old); err != nil {
			return nil, err
		}
		obj := old.DeepCopyObject()
		meta := accessor(obj)
		if scale.ResourceVersion != "" {
			meta.SetResourceVersion(scale.ResourceVersion)
		}
		if err := op.endpoint.setReplicas(obj, scale.Spec.Replicas); err != nil {
			return nil, err
		}
		managed, err := handler.ToParent(scale.ManagedFields)
		if err != nil {
			return nil, err
		}
		meta.SetManagedFields(managed)
		return obj, nil
	})
	if err != nil {
		return nil, err
	}
	return op.endpoint.scaleOf(out)
}

// trackedScale also records the field manager of the replicas; an apply does that itself.
func (op *operation) trackedScale(fn func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error)) func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	return func(before *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		scale, err := fn(before)
		if err != nil {
			return nil, err
		}
		scale = scale.DeepCopy()
		if op.fieldManager == "" {
			scale.ManagedFields = before.ManagedFields
			return scale, nil
		}
		m, err := scaleManager()
		if err != nil {
			return nil, err
		}
		obj := m.UpdateNoErrors(before, scale, op.fieldManager)
		clearKind(obj)
		return obj.(*autoscalingv1.Scale), nil
	}
}

// showScales replaces the workload by its Scale in the attributes, because admission decides on the
// Scale.
func (e *endpoint) showScales(a *admission.Attributes) error {
	after, err := e.scaleOf(a.Object)
	if err != nil {
		return err
	}
	before, err := e.scaleOf(a.OldObject)
	if err != nil {
		return err
	}
	a.Object, a.OldObject = after, before
	return nil
}

func (op *operation) checkScale(scale *autoscalingv1.Scale, old runtime.Object) error {
	if uid := accessor(old).GetUID(); scale.UID != "" && scale.UID != uid {
		gr := op.endpoint.resource
		gr.Resource += "/scale"
		return apierrors.NewConflict(gr, op.name, fmt.Errorf("Precondition failed: UID in precondition: %s, UID in object meta: %s", scale.UID, uid))
	}
	if op.endpoint.custom != nil {
		return nil // a custom object is validated as a whole
	}
	errs := apivalidation.ValidateObjectMeta(&scale.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if scale.Spec.Replicas < 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0"))
	}
	if len(errs) > 0 {
		return api.Invalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), scale.Name, errs)
	}
	return nil
}
