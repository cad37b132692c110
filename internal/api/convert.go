package api

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Convert returns obj in another version or, for Events, in the other group. It returns obj itself
// if that is the requested version; otherwise the result may share memory with obj. Converting a
// kind that has only one version is an error.
func Convert(obj runtime.Object, to schema.GroupVersion) (runtime.Object, error) {
	from, err := gvkOf(obj)
	if err != nil {
		return nil, err
	}
	if from.GroupVersion() == to {
		return obj, nil
	}
	var out runtime.Object
	switch o := obj.(type) {
	case *autoscalingv1.HorizontalPodAutoscaler:
		out, err = hpaToV2(o)
	case *autoscalingv2.HorizontalPodAutoscaler:
		out, err = hpaToV1(o)
	case *autoscalingv1.HorizontalPodAutoscalerList:
		out, err = convertItems(&autoscalingv2.HorizontalPodAutoscalerList{ListMeta: o.ListMeta}, o.Items, hpaToV2,
			func(l *autoscalingv2.HorizontalPodAutoscalerList) *[]autoscalingv2.HorizontalPodAutoscaler {
				return &l.Items
			})
	case *autoscalingv2.HorizontalPodAutoscalerList:
		out, err = convertItems(&autoscalingv1.HorizontalPodAutoscalerList{ListMeta: o.ListMeta}, o.Items, hpaToV1,
			func(l *autoscalingv1.HorizontalPodAutoscalerList) *[]autoscalingv1.HorizontalPodAutoscaler {
				return &l.Items
			})
	case *corev1.Event:
		out, err = eventToEvents(o)
	case *eventsv1.Event:
		out, err = eventToCore(o)
	case *corev1.EventList:
		out, err = convertItems(&eventsv1.EventList{ListMeta: o.ListMeta}, o.Items, eventToEvents,
			func(l *eventsv1.EventList) *[]eventsv1.Event { return &l.Items })
	case *eventsv1.EventList:
		out, err = convertItems(&corev1.EventList{ListMeta: o.ListMeta}, o.Items, eventToCore,
			func(l *corev1.EventList) *[]corev1.Event { return &l.Items })
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		out, err = sameWire(o, &admissionregistrationv1beta1.MutatingAdmissionPolicy{})
	case *admissionregistrationv1beta1.MutatingAdmissionPolicy:
		out, err = sameWire(o, &admissionregistrationv1.MutatingAdmissionPolicy{})
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		out, err = sameWire(o, &admissionregistrationv1beta1.MutatingAdmissionPolicyBinding{})
	case *admissionregistrationv1beta1.MutatingAdmissionPolicyBinding:
		out, err = sameWire(o, &admissionregistrationv1.MutatingAdmissionPolicyBinding{})
	case *apiextensionsv1.CustomResourceDefinition:
		out, err = throughInternal(o, &apiextensions.CustomResourceDefinition{}, &apiextensionsv1beta1.CustomResourceDefinition{})
	case *apiextensionsv1beta1.CustomResourceDefinition:
		// A definition without preserveUnknownFields keeps unknown fields in v1beta1 and drops them
		// in v1. v1beta1 occurs only in the store, so this function owns the object and may change
		// it.
		apiextensionsv1beta1.SetObjectDefaults_CustomResourceDefinition(o)
		out, err = throughInternal(o, &apiextensions.CustomResourceDefinition{}, &apiextensionsv1.CustomResourceDefinition{})
	}
	if err != nil {
		return nil, fmt.Errorf("convert %s to %s: %w", from, to, err)
	}
	if out == nil {
		return nil, fmt.Errorf("convert %s to %s: no such conversion", from, to)
	}
	got, err := gvkOf(out)
	if err != nil || got.GroupVersion() != to {
		return nil, fmt.Errorf("convert %s to %s: no such conversion", from, to)
	}
	if obj.GetObjectKind().GroupVersionKind().Kind != "" {
		out.GetObjectKind().SetGroupVersionKind(got)
	}
	return out, nil
}

// ToHub returns a built-in object in its hub version. Types outside the table are returned
// unchanged.
func ToHub(obj runtime.Object) (runtime.Object, error) {
	gvk, err := gvkOf(obj)
	if err != nil {
		return nil, err
	}
	if k, ok := ByKind(gvk.GroupKind()); ok {
		return Convert(obj, k.Kind.GroupVersion())
	}
	return obj, nil
}

// gvkOf returns the scheme's kind of the Go type and ignores the object's TypeMeta.
func gvkOf(obj runtime.Object) (schema.GroupVersionKind, error) {
	kinds, _, err := Scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return kinds[0], nil
}

func convertItems[From, To any, L runtime.Object](out L, items []From, one func(*From) (*To, error), field func(L) *[]To) (runtime.Object, error) {
	list := make([]To, 0, len(items))
	for i := range items {
		to, err := one(&items[i])
		if err != nil {
			return nil, err
		}
		list = append(list, *to)
	}
	*field(out) = list
	return out, nil
}

type wired interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// sameWire converts between versions with the same protobuf fields. A test compares the types.
func sameWire(in, out wired) (runtime.Object, error) {
	data, err := in.Marshal()
	if err != nil {
		return nil, err
	}
	return out, out.Unmarshal(data)
}

func throughInternal(in, hub, out runtime.Object) (runtime.Object, error) {
	in = in.DeepCopyObject() // the library's conversion shares memory and sets defaults
	if err := Scheme.Convert(in, hub, nil); err != nil {
		return nil, err
	}
	return out, Scheme.Convert(hub, out, nil)
}
