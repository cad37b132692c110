package registry

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/resource"
)

// newScales returns an endpoint that encodes Scales. They are read and written through their own
// kinds.
func newScales(s *Shared) *Endpoint {
	kind := &api.Kind{Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Resource: "scales", Namespaced: true, Object: &autoscalingv1.Scale{}}
	return NewEndpoint(&Registry{Shared: s, Kind: kind, Hub: kind.Kind, Resource: kind.GroupResource(), Strategy: resource.Scales}, kind.Kind.Version)
}

// ScaleOf returns the Scale of an object of the endpoint's kind.
func (e *Endpoint) ScaleOf(obj runtime.Object) (*autoscalingv1.Scale, error) {
	if e.Custom == nil {
		return ScaleOf(obj)
	}
	s, _, err := e.Custom.Scale(obj.(*unstructured.Unstructured))
	return s, err
}

// ScaleOf returns the Scale of a workload.
func ScaleOf(obj runtime.Object) (*autoscalingv1.Scale, error) {
	meta := wire.Accessor(obj)
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

// SetReplicas sets the object's wanted number of replicas.
func (e *Endpoint) SetReplicas(obj runtime.Object, n int32) error {
	if e.Custom != nil {
		return e.Custom.SetReplicas(obj.(*unstructured.Unstructured), n)
	}
	*replicasOf(obj) = &n
	return nil
}

// ScaleAttributes replaces the workload by its Scale in the attributes, because admission decides
// on the Scale.
func (e *Endpoint) ScaleAttributes(a *admission.Attributes) error {
	after, err := e.ScaleOf(a.Object)
	if err != nil {
		return err
	}
	before, err := e.ScaleOf(a.OldObject)
	if err != nil {
		return err
	}
	a.Object, a.OldObject = after, before
	return nil
}
