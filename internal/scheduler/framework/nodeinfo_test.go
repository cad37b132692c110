package framework

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"
)

// The quick sum of a pod with one container must be that of the library.
func TestRequestsOfOneContainerAreSummedAsByTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := &corev1.Pod{}
		for i := range rapid.IntRange(1, 2).Draw(t, "containers") {
			requests := corev1.ResourceList{}
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, "example.com/a"} {
				if rapid.Bool().Draw(t, string(name)) {
					requests[name] = resource.MustParse(rapid.SampledFrom([]string{"0", "1", "250m", "3Gi"}).Draw(t, "amount"))
				}
			}
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint(i), Resources: corev1.ResourceRequirements{Requests: requests}})
		}
		if rapid.Bool().Draw(t, "overhead") {
			pod.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
		}
		if rapid.Bool().Draw(t, "init") {
			pod.Spec.InitContainers = pod.Spec.Containers[:1]
		}
		if rapid.Bool().Draw(t, "resources of the pod") {
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7")}}
		}
		info := NewPodInfo(pod)
		requests := ResourcesOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}))
		requests.Pods = 1
		defaults := corev1.ResourceList{corev1.ResourceCPU: *milli(defaultMilliCPU), corev1.ResourceMemory: *bytes(defaultMemory)}
		if pod.Spec.Resources != nil {
			// The pod requests CPU, and memory if a container does.
			for name := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
				delete(defaults, name)
			}
		}
		scored := ResourcesOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
			UseStatusResources:          true,
			NonMissingContainerRequests: defaults,
		}))
		if !reflect.DeepEqual(info.Requests, requests) {
			t.Fatalf("requests %+v, the library sums %+v", info.Requests, requests)
		}
		if !reflect.DeepEqual(info.Scored, scored) {
			t.Fatalf("scored %+v, the library sums %+v", info.Scored, scored)
		}
	})
}

func BenchmarkNewPodInfo(b *testing.B) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("500Mi"),
	}}}}}}
	b.ReportAllocs()
	for b.Loop() {
		NewPodInfo(pod)
	}
}
