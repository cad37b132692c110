package api

import (
	"bytes"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

func TestTableIsConsistent(t *testing.T) {
	prefixes := map[string]string{}
	for i := range kinds {
		k := &kinds[i]
		name := k.GVR().String()
		if got, err := gvkOf(k.Object); err != nil || got != k.Kind {
			t.Errorf("%s: the object's kind is %v (%v), the table has %v", name, got, err, k.Kind)
		}
		if k.Served[0] != k.Kind.Version {
			t.Errorf("%s: the hub %s is not the preferred version", name, k.Kind.Version)
		}
		for _, v := range k.Served {
			if !Scheme.Recognizes(k.Kind.GroupKind().WithVersion(v)) {
				t.Errorf("%s: version %s is not in the scheme", name, v)
			}
		}
		if k.Virtual != (k.Prefix == "") {
			t.Errorf("%s: virtual kinds have no prefix, others have one", name)
		}
		if got := ResourceOf(k.Object); got != k.GVR() {
			t.Errorf("%s: ResourceOf gives %v", name, got)
		}
		if k.Virtual {
			continue
		}
		if !Scheme.Recognizes(k.StoredAs()) {
			t.Errorf("%s: stored as %v, which is not in the scheme", name, k.StoredAs())
		}
		if _, err := k.NewList(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if other, ok := prefixes[k.Prefix]; ok && k.Alias == (schema.GroupResource{}) {
			t.Errorf("%s and %s both lie at %s", name, other, k.Prefix)
		}
		prefixes[k.Prefix] = name
		if strings.HasSuffix(k.Prefix, "/") || !strings.HasPrefix(k.Prefix, "/registry/") {
			t.Errorf("%s: odd prefix %s", name, k.Prefix)
		}
	}
}

func TestEveryKindSurvivesTheStore(t *testing.T) {
	for i := range kinds {
		k := &kinds[i]
		if k.Virtual || k.Alias != (schema.GroupResource{}) {
			continue
		}
		t.Run(k.Resource, func(t *testing.T) {
			obj := k.New()
			meta := obj.(metav1.Object)
			meta.SetName("a")
			meta.SetLabels(map[string]string{"b": "c"})
			obj.GetObjectKind().SetGroupVersionKind(k.Kind)
			data, err := EncodeStored(obj)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(data, []byte("k8s\x00")) {
				t.Fatalf("not in the protobuf envelope: %q", data)
			}
			if !bytes.Contains(data, []byte(k.StoredAs().Version)) {
				t.Errorf("stored version %s not in the envelope: %q", k.StoredAs().Version, data)
			}
			back, err := DecodeStored(data)
			if err != nil {
				t.Fatal(err)
			}
			if reflect.TypeOf(back) != reflect.TypeOf(k.Object) || back.GetObjectKind().GroupVersionKind() != k.Kind {
				t.Fatalf("decoded %T, %v", back, back.GetObjectKind().GroupVersionKind())
			}
			if got := back.(metav1.Object); got.GetName() != "a" || got.GetLabels()["b"] != "c" {
				t.Errorf("metadata lost: %#v", got)
			}
		})
	}
}

func TestVersionsWithTheSameWireFormatHaveTheSameFields(t *testing.T) {
	for _, k := range kinds {
		if k.Kind.Group != "admissionregistration.k8s.io" || k.StorageVersion == "" {
			continue
		}
		for seed := range int64(50) {
			rnd := rand.New(rand.NewSource(seed))
			obj := k.New()
			newFiller(rnd).Fill(obj)
			obj.GetObjectKind().SetGroupVersionKind(k.Kind)
			stored, err := Convert(obj, k.StoredAs().GroupVersion())
			if err != nil {
				t.Fatal(err)
			}
			back, err := Convert(stored, k.Kind.GroupVersion())
			if err != nil {
				t.Fatal(err)
			}
			if !apiequality.Semantic.DeepEqual(obj, back) {
				t.Fatalf("%s: seed %d: lost on the way through %s", k.Resource, seed, k.StorageVersion)
			}
		}
	}
}

func TestAnEventIsTheSameInBothGroups(t *testing.T) {
	for seed := range int64(50) {
		e := &corev1.Event{}
		newFiller(rand.New(rand.NewSource(seed))).Fill(e)
		e.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Event"))
		other, err := Convert(e, eventsv1.SchemeGroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		if got := other.GetObjectKind().GroupVersionKind(); got != eventsv1.SchemeGroupVersion.WithKind("Event") {
			t.Fatalf("kind %v", got)
		}
		back, err := Convert(other, corev1.SchemeGroupVersion)
		if err != nil || !apiequality.Semantic.DeepEqual(e, back) {
			t.Fatalf("seed %d: %v: lost on the way", seed, err)
		}
	}
}

func TestAutoscalerV1CarriesV2InAnnotations(t *testing.T) {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"x": "y"}},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: 3,
			Metrics: []autoscalingv2.MetricSpec{
				{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
					Metric: autoscalingv2.MetricIdentifier{Name: "hits"},
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(resource.MustParse("7"))},
				}},
				{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
					Name:   corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(int32(50))},
				}},
			},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To(int32(300)), Tolerance: ptr.To(resource.MustParse("100m"))},
			},
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue}},
		},
	}
	one, err := Convert(hpa, autoscalingv1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	v1 := one.(*autoscalingv1.HorizontalPodAutoscaler)
	if got := v1.Spec.TargetCPUUtilizationPercentage; got == nil || *got != 50 {
		t.Errorf("CPU target %v", got)
	}
	want := `[{"type":"Pods","pods":{"metricName":"hits","targetAverageValue":"7"}}]`
	if got := v1.Annotations[hpaMetricsAnnotation]; got != want {
		t.Errorf("metrics annotation %s, want %s", got, want)
	}
	back, err := Convert(one, autoscalingv2.SchemeGroupVersion)
	if err != nil || !apiequality.Semantic.DeepEqual(hpa, back) {
		t.Errorf("%v: got %#v", err, back)
	}
}

func TestInvalidAutoscalerAnnotationsAreDropped(t *testing.T) {
	for _, text := range []string{"/a", "", "{}", `{"ScaleUp": 3}`, `[{"resource": {"targetAverageValue": "x", "currentAverageValue": "x"}}]`} {
		percent := int32(7)
		hpa := &autoscalingv1.HorizontalPodAutoscaler{
			Spec:   autoscalingv1.HorizontalPodAutoscalerSpec{TargetCPUUtilizationPercentage: &percent},
			Status: autoscalingv1.HorizontalPodAutoscalerStatus{CurrentCPUUtilizationPercentage: &percent},
		}
		hpa.Annotations = map[string]string{hpaMetricsAnnotation: text, hpaCurrentMetricsAnnotation: text, hpaConditionsAnnotation: text}
		if text != "{}" { // an empty behavior is dropped
			hpa.Annotations[hpaBehaviorAnnotation] = text
		}
		obj, err := Convert(hpa, autoscalingv2.SchemeGroupVersion)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		v2 := obj.(*autoscalingv2.HorizontalPodAutoscaler)
		if len(v2.Spec.Metrics) != 1 || len(v2.Status.CurrentMetrics) != 1 || v2.Spec.Behavior != nil || len(v2.Annotations) > 0 {
			t.Errorf("%q: %d metrics, %d measured, behavior %v, annotations %v; want those of the CPU alone", text, len(v2.Spec.Metrics), len(v2.Status.CurrentMetrics), v2.Spec.Behavior, v2.Annotations)
		}
	}
}

// v1beta1 keeps unknown fields by default, v1 drops them.
func TestAStoredDefinitionOfV1beta1KeepsUnknownFields(t *testing.T) {
	for spec, keeps := range map[string]bool{``: true, `,"preserveUnknownFields":true`: true, `,"preserveUnknownFields":false`: false} {
		obj, err := DecodeStored([]byte(`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":{"name":"as.g.example.com"},"spec":{"group":"g.example.com","version":"v1",
			"names":{"plural":"as","kind":"A"},"validation":{"openAPIV3Schema":{"type":"object"}}` + spec + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		crd := obj.(*apiextensionsv1.CustomResourceDefinition)
		if crd.Spec.PreserveUnknownFields != keeps || crd.Spec.Scope != apiextensionsv1.NamespaceScoped || len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Schema == nil {
			t.Errorf("%q is read as %+v", spec, crd.Spec)
		}
		again, err := EncodeStored(obj)
		if err != nil {
			t.Fatal(err)
		}
		if obj, err = DecodeStored(again); err != nil || obj.(*apiextensionsv1.CustomResourceDefinition).Spec.PreserveUnknownFields != keeps {
			t.Errorf("%q is read otherwise after it is written: %v", spec, err)
		}
	}
}
