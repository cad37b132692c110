package pods

import (
	"fmt"
	"math/rand"
	"reflect"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/knarr-project/knarr/internal/api"
)

// replica returns a pod as a ReplicaSet's are, decoded from its stored form.
func replica(t *testing.T, i int) *corev1.Pod {
	t.Helper()
	yes, seconds := true, int64(300)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "fleet", Name: fmt.Sprint("ship-", i), GenerateName: "ship-", Labels: map[string]string{"app": "ship", "pod-template-hash": "abc"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "ship", UID: "u", Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default", SchedulerName: "default-scheduler", NodeSelector: map[string]string{"disk": "fast"},
			Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Gi")}}}},
			Volumes: []corev1.Volume{{Name: fmt.Sprint("token-", i), VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
			}}}},
			Tolerations: []corev1.Toleration{{Key: "down", Operator: "Exists", TolerationSeconds: &seconds}},
			Affinity:    &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
		},
	}
	return decodedPod(t, pod)
}

func decodedPod(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	out := &corev1.Pod{}
	if err := out.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestReplicasShareTheirParts(t *testing.T) {
	a, b := replica(t, 1), replica(t, 2)
	sharePod(a)
	sharePod(b)
	for what, same := range map[string]bool{
		"labels":      reflect.ValueOf(a.Labels).Pointer() == reflect.ValueOf(b.Labels).Pointer(),
		"owners":      &a.OwnerReferences[0] == &b.OwnerReferences[0],
		"selector":    reflect.ValueOf(a.Spec.NodeSelector).Pointer() == reflect.ValueOf(b.Spec.NodeSelector).Pointer(),
		"requests":    reflect.ValueOf(a.Spec.Containers[0].Resources.Requests).Pointer() == reflect.ValueOf(b.Spec.Containers[0].Resources.Requests).Pointer(),
		"tolerations": &a.Spec.Tolerations[0] == &b.Spec.Tolerations[0],
		"affinity":    a.Spec.Affinity == b.Spec.Affinity,
		"projection":  a.Spec.Volumes[0].Projected == b.Spec.Volumes[0].Projected,
		"namespace":   unsafe.StringData(a.Namespace) == unsafe.StringData(b.Namespace),
		"image":       unsafe.StringData(a.Spec.Containers[0].Image) == unsafe.StringData(b.Spec.Containers[0].Image),
	} {
		if !same {
			t.Errorf("each replica has its own %s", what)
		}
	}
	if a.Name == b.Name || a.Spec.Volumes[0].Name == b.Spec.Volumes[0].Name {
		t.Error("replicas share what differs")
	}
}

// Equal numbers in different forms must keep their forms, which are part of an answer.
func TestPartsKeepTheirForm(t *testing.T) {
	for _, form := range []string{"1", "1000m", "1e0", "1Gi", "1024Mi", "1073741824"} {
		want := resource.MustParse(form)
		if got := (&sharer{}).resources(corev1.ResourceList{"x": want})["x"]; got.String() != want.String() || got.Format != want.Format {
			t.Errorf("%s has become %s", form, got.String())
		}
	}
	no := false
	for _, refs := range [][]metav1.OwnerReference{{{Name: "a", Kind: "b"}}, {{Name: "ab"}}, {{Kind: "ab"}}, {{Name: "ab", Controller: &no}}, {{Name: "ab", BlockOwnerDeletion: &no}}} {
		if got := (&sharer{}).owners(refs); !equality.Semantic.DeepEqual(got, refs) {
			t.Errorf("%v has become %v", refs, got)
		}
	}
}

func TestSharedPodsStayEqual(t *testing.T) {
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(1), serializer.NewCodecFactory(api.Scheme))
	for range 300 {
		pod := &corev1.Pod{}
		fill.Fill(pod)
		pod = decodedPod(t, pod)
		before := pod.DeepCopy()
		for range 2 {
			sharePod(pod)
			if !equality.Semantic.DeepEqual(pod, before) {
				t.Fatalf("%v\nhas become\n%v", before, pod)
			}
		}
	}
}

func BenchmarkSharePod(b *testing.B) {
	pods := make([]*corev1.Pod, 64)
	for i := range pods {
		pods[i] = replica(&testing.T{}, i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		pod := *pods[i%len(pods)]
		sharePod(&pod)
	}
}
