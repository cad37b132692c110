package scheduler_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
)

// newExtendedPod asks for a device of the class "gpu" by its extended resource.
func newExtendedPod(c *controllertest.Cluster, name string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: controllertest.Template(name).Spec}
	one := corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
	controllertest.Create(c, p)
}

func TestAPodGetsADeviceForAnExtendedResource(t *testing.T) {
	c := start(t, []string{"a", "b"})
	newExtendedPod(c, "p")
	podIs(t, c, "p", "", "2 Insufficient example.com/gpu")
	newDevices(t, c, "b", nil, "x")
	extended := "example.com/gpu"
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: &extended}}
	if _, err := client.Create(t.Context(), c.Client, class); err != nil {
		t.Fatal(err)
	}
	podIs(t, c, "p", "b", "")
	p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", "p")
	if err != nil {
		t.Fatal(err)
	}
	status := p.Status.ExtendedResourceClaimStatus
	if status == nil || len(status.RequestMappings) != 1 || status.RequestMappings[0].ResourceName != extended {
		t.Fatalf("the pod's status has %+v", status)
	}
	claim := resourceClaimIs(t, c, status.ResourceClaimName, "b/x", 1)
	if owner := metav1.GetControllerOf(claim); owner == nil || owner.UID != p.UID || claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" {
		t.Errorf("the claim is %+v", claim.ObjectMeta)
	}
	// The device is taken. A second pod waits for another one.
	newExtendedPod(c, "q")
	podIs(t, c, "q", "", "2 cannot allocate all claims")
	newDevices(t, c, "a", nil, "x")
	podIs(t, c, "q", "a", "")
}

func TestTheClaimOfAnEarlierAttemptIsReplaced(t *testing.T) {
	c := start(t, []string{"a"})
	newExtendedPod(c, "p")
	podIs(t, c, "p", "", "1 Insufficient example.com/gpu")
	p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", "p")
	if err != nil {
		t.Fatal(err)
	}
	isController := true
	old := controllertest.Create(c, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "old", Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}, Finalizers: []string{resourcev1.Finalizer},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: p.UID, Controller: &isController}},
	}, Spec: requests()})
	newDevices(t, c, "a", nil, "x")
	extended := "example.com/gpu"
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: &extended}}
	if _, err := client.Create(t.Context(), c.Client, class); err != nil {
		t.Fatal(err)
	}
	podIs(t, c, "p", "a", "")
	claims := controllertest.List[*resourcev1.ResourceClaim](c)
	if len(claims) != 1 || claims[0].UID == old.UID {
		t.Errorf("there are %d claims: %+v", len(claims), claims)
	}
}
