package verb

import (
	"context"
	"fmt"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/openapi"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

func (op *Operation) getScale(ctx context.Context, opts *metav1.GetOptions) (runtime.Object, error) {
	entry, err := op.Get(ctx, opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	obj, err := op.Endpoint.ObjectOf(entry)
	if err != nil {
		return nil, err
	}
	if custom := op.Endpoint.Custom; custom != nil {
		scale, found, err := custom.Scale(obj.(*unstructured.Unstructured))
		if err == nil && !found {
			err = custom.ErrNoReplicas()
		}
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return scale, nil
	}
	return registry.ScaleOf(obj)
}

func (op *Operation) replaceScale(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest("expected input object type to be Scale")
	}
	if err := op.checkNames(scale); err != nil {
		return nil, err
	}
	scale.Namespace = op.Namespace // which a body may omit
	return op.updateScale(ctx, op.trackedScale(func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error) { return scale, nil }))
}

func (op *Operation) patchScale(ctx context.Context, p PatchRequest) (runtime.Object, error) {
	if p.Kind == types.ApplyYAMLPatchType {
		return op.updateScale(ctx, func(old *autoscalingv1.Scale) (*autoscalingv1.Scale, error) { return op.applyScale(old, p) })
	}
	return op.updateScale(ctx, op.trackedScale(func(old *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		obj, err := op.patchVersioned(old, op.GVK, p)
		if err != nil {
			return nil, err
		}
		scale := obj.(*autoscalingv1.Scale)
		return scale, op.checkNames(scale)
	}))
}

func (op *Operation) applyScale(old *autoscalingv1.Scale, p PatchRequest) (*autoscalingv1.Scale, error) {
	a, err := decodeApplyConfiguration(p.Data)
	if err != nil {
		return nil, err
	}
	if gvk := a.GroupVersionKind(); gvk != op.GVK {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid object type: %v", gvk))
	}
	m, err := scaleManager()
	if err != nil {
		return nil, err
	}
	obj, err := m.Apply(old.DeepCopy(), a.Unstructured, op.FieldManager, p.Force)
	if err != nil {
		return nil, err
	}
	wire.ClearKind(obj)
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, fmt.Errorf("apply returned a %T, expected a Scale", obj)
	}
	return scale, op.checkNames(scale)
}

// scaleManager tracks the fields of Scales; managedfields.ScaleHandler maps their owners to those
// of the workload.
var scaleManager = sync.OnceValues(func() (registry.FieldManager, error) {
	gvk := autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	return managedfields.NewDefaultFieldManager(openapi.TypeConverterFor(gvk), wire.ObjectConvertor{Hub: gvk, Served: gvk}, noopDefaulter{}, api.Scheme, gvk, gvk.GroupVersion(), "scale", nil)
})

type noopDefaulter struct{}

func (noopDefaulter) Default(runtime.Object) {}

// scaleHandler translates ownership between a workload and its Scale.
func (op *Operation) scaleHandler(obj runtime.Object) *managedfields.ScaleHandler {
	gv := op.Endpoint.GVK.GroupVersion()
	if op.Endpoint.Custom != nil {
		return managedfields.NewScaleHandler(wire.Accessor(obj).GetManagedFields(), gv, op.Endpoint.Custom.Definition().ReplicasPaths())
	}
	replicas := fieldpath.MakePathOrDie("spec", "replicas")
	return managedfields.NewScaleHandler(wire.Accessor(obj).GetManagedFields(), gv, managedfields.ResourcePathMappings{gv.String(): replicas})
}

// updateScale sets a workload's replicas through its Scale.
func (op *Operation) updateScale(ctx context.Context, fn func(old *autoscalingv1.Scale) (*autoscalingv1.Scale, error)) (runtime.Object, error) {
	out, _, err := op.Update(ctx, false, func(ctx context.Context, old runtime.Object) (runtime.Object, error) {
		before, err := op.Endpoint.ScaleOf(old)
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
		if err := op.Admit(ctx, op.Attributes(admission.Update, scale, before)); err != nil {
			return nil, err
		}
		if err := op.checkScale(scale, old); err != nil {
			return nil, err
		}
		obj := old.DeepCopyObject()
		meta := wire.Accessor(obj)
		if scale.ResourceVersion != "" {
			meta.SetResourceVersion(scale.ResourceVersion)
		}
		if err := op.Endpoint.SetReplicas(obj, scale.Spec.Replicas); err != nil {
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
	return op.Endpoint.ScaleOf(out)
}

// trackedScale also records the field manager of the replicas; an apply does that itself.
func (op *Operation) trackedScale(fn func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error)) func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	return func(before *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		scale, err := fn(before)
		if err != nil {
			return nil, err
		}
		scale = scale.DeepCopy()
		if op.FieldManager == "" {
			scale.ManagedFields = before.ManagedFields
			return scale, nil
		}
		m, err := scaleManager()
		if err != nil {
			return nil, err
		}
		obj := m.UpdateNoErrors(before, scale, op.FieldManager)
		wire.ClearKind(obj)
		return obj.(*autoscalingv1.Scale), nil
	}
}

func (op *Operation) checkScale(scale *autoscalingv1.Scale, old runtime.Object) error {
	if uid := wire.Accessor(old).GetUID(); scale.UID != "" && scale.UID != uid {
		gr := op.Endpoint.Resource
		gr.Resource += "/scale"
		return apierrors.NewConflict(gr, op.Name, fmt.Errorf("Precondition failed: UID in precondition: %s, UID in object meta: %s", scale.UID, uid))
	}
	if op.Endpoint.Custom != nil {
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
