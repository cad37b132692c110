package resourceclaim

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
)

func start(t *testing.T) *controllertest.Cluster {
	c := controllertest.New(t)
	c.Run(Controller)
	return c
}

func newTemplate(c *controllertest.Cluster, name string) {
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	t.Spec.Labels, t.Spec.Annotations = map[string]string{"l": "1"}, map[string]string{"a": "2"}
	t.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "class"}}}
	controllertest.Create(c, t)
}

func newPod(c *controllertest.Cluster, name string, change func(*corev1.PodSpec)) *corev1.Pod {
	template, tn := controllertest.Template(name), "t"
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: template.Spec}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &tn}}
	if change != nil {
		change(&p.Spec)
	}
	return controllertest.Create(c, p)
}

func newClaim(c *controllertest.Cluster, name string) *resourcev1.ResourceClaim {
	rc := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	rc.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "class"}}}
	return controllertest.Create(c, rc)
}

// allocate acts as the scheduler: it protects the claim, allocates it, and reserves it for the
// pods.
func allocate(c *controllertest.Cluster, rc *resourcev1.ResourceClaim, pods ...*corev1.Pod) *resourcev1.ResourceClaim {
	rc = controllertest.Retry(c, rc, func(rc *resourcev1.ResourceClaim) { rc.Finalizers = []string{resourcev1.Finalizer} })
	return controllertest.Retry(c, rc, func(rc *resourcev1.ResourceClaim) {
		rc.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "r", Driver: "example.com", Pool: "p", Device: "d"},
		}}}
		for _, p := range pods {
			rc.Status.ReservedFor = append(rc.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
		}
	}, "status")
}

// waitForClaim waits until the pod's status names a claim, and returns the claim.
func waitForClaim(t *testing.T, c *controllertest.Cluster, p *corev1.Pod) (rc *resourcev1.ResourceClaim) {
	t.Helper()
	c.Eventually("the pod's status names a claim", func() string {
		p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", p.Name)
		if err != nil || len(p.Status.ResourceClaimStatuses) != 1 || p.Status.ResourceClaimStatuses[0].Name != "gpu" {
			return fmt.Sprint(err, p.Status.ResourceClaimStatuses)
		}
		rc, err = client.Get[*resourcev1.ResourceClaim](t.Context(), c.Client, "default", *p.Status.ResourceClaimStatuses[0].ResourceClaimName)
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return rc
}

func claimIs(t *testing.T, c *controllertest.Cluster, name string, want func(*resourcev1.ResourceClaim) bool) func() string {
	return func() string {
		rc, err := client.Get[*resourcev1.ResourceClaim](t.Context(), c.Client, "default", name)
		if err != nil || !want(rc) {
			return fmt.Sprint(err, rc)
		}
		return ""
	}
}

func free(rc *resourcev1.ResourceClaim) bool {
	return rc.Status.Allocation == nil && len(rc.Status.ReservedFor) == 0 && len(rc.Finalizers) == 0
}

func isGone(t *testing.T, c *controllertest.Cluster, name string) func() string {
	return func() string {
		if rc, err := client.Get[*resourcev1.ResourceClaim](t.Context(), c.Client, "default", name); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err, rc)
		}
		return ""
	}
}

func TestAPodGetsAClaimOfItsTemplate(t *testing.T) {
	c := start(t)
	newTemplate(c, "t")
	p := newPod(c, "p", nil)
	rc := waitForClaim(t, c, p)
	if !strings.HasPrefix(rc.Name, "p-gpu-") || rc.Labels["l"] != "1" || rc.Annotations["a"] != "2" ||
		rc.Annotations["resource.kubernetes.io/pod-claim-name"] != "gpu" || !metav1.IsControlledBy(rc, p) || len(rc.Spec.Devices.Requests) != 1 {
		t.Errorf("the claim is %+v", rc)
	}
	if n := len(controllertest.List[*resourcev1.ResourceClaim](c)); n != 1 {
		t.Errorf("there are %d claims", n)
	}
}

func TestAMissingTemplateCausesAnEventUntilItExists(t *testing.T) {
	c := start(t)
	p := newPod(c, "p", nil)
	c.Eventually("an event", func() string {
		for _, e := range c.Events.List() {
			if strings.Contains(e, `PodResourceClaim gpu: resource claim template "t": `) {
				return ""
			}
		}
		return fmt.Sprint(c.Events.List())
	})
	newTemplate(c, "t")
	waitForClaim(t, c, p)
}

func TestADeletedClaimIsCreatedAgain(t *testing.T) {
	c := start(t)
	newTemplate(c, "t")
	p := newPod(c, "p", nil)
	first := waitForClaim(t, c, p)
	if err := client.Delete[*resourcev1.ResourceClaim](t.Context(), c.Client, "default", first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if second := waitForClaim(t, c, p); second.Name == first.Name {
		t.Errorf("the pod's status names %s still", first.Name)
	}
}

func TestAClaimIsReleasedWhenItsLastPodHasEnded(t *testing.T) {
	c := start(t)
	name := "shared"
	use := func(s *corev1.PodSpec) {
		s.NodeName = "node"
		s.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &name}
	}
	a, b := newPod(c, "a", use), newPod(c, "b", use)
	rc := allocate(c, newClaim(c, name), a, b)
	controllertest.Retry(c, a, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "status")
	c.Eventually("one pod is left", claimIs(t, c, name, func(rc *resourcev1.ResourceClaim) bool {
		return len(rc.Status.ReservedFor) == 1 && rc.Status.ReservedFor[0].Name == "b" && rc.Status.Allocation != nil
	}))
	now := int64(0)
	if err := client.Delete[*corev1.Pod](t.Context(), c.Client, "default", "b", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("it is free", claimIs(t, c, rc.Name, free))
}

func TestAReservationBelongsToThePodsUID(t *testing.T) {
	c := start(t)
	name := "shared"
	use := func(s *corev1.PodSpec) {
		s.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &name}
	}
	rc := newClaim(c, name)
	p := newPod(c, "p", use).DeepCopy()
	p.UID = "another"
	allocate(c, rc, p)
	c.Eventually("it is free", claimIs(t, c, name, free))
}

func TestAPodsOwnClaimIsDeletedAfterThePodsEnd(t *testing.T) {
	c := start(t)
	newTemplate(c, "t")
	p := newPod(c, "p", func(s *corev1.PodSpec) { s.NodeName = "node" })
	rc := waitForClaim(t, c, p)
	allocate(c, rc, p)
	controllertest.Retry(c, p, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "status")
	c.Eventually("the claim is gone", isGone(t, c, rc.Name))
}

func TestADeletedClaimIsProtectedWhileItIsUsed(t *testing.T) {
	c := start(t)
	name := "shared"
	p := newPod(c, "p", func(s *corev1.PodSpec) {
		s.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &name}
	})
	allocate(c, newClaim(c, name), p)
	if err := client.Delete[*resourcev1.ResourceClaim](t.Context(), c.Client, "default", name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("it is being deleted", claimIs(t, c, name, func(rc *resourcev1.ResourceClaim) bool {
		return rc.DeletionTimestamp != nil && rc.Status.Allocation != nil && len(rc.Finalizers) == 1
	}))
	// The pod has no node, so it ends as soon as it is deleted.
	if err := client.Delete[*corev1.Pod](t.Context(), c.Client, "default", "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the claim is gone", isGone(t, c, name))
}

func TestAnUnreservedClaimCanBeDeleted(t *testing.T) {
	c := start(t)
	rc := allocate(c, newClaim(c, "c"))
	if err := client.Delete[*resourcev1.ResourceClaim](t.Context(), c.Client, "default", rc.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the claim is gone", isGone(t, c, rc.Name))
}

func TestAPodBoundWithoutTheSchedulerGetsItsReservation(t *testing.T) {
	c := start(t)
	name := "shared"
	allocate(c, newClaim(c, name))
	newPod(c, "p", func(s *corev1.PodSpec) {
		s.NodeName = "node"
		s.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &name}
	})
	c.Eventually("it is reserved", claimIs(t, c, name, func(rc *resourcev1.ResourceClaim) bool {
		return len(rc.Status.ReservedFor) == 1 && rc.Status.ReservedFor[0].Name == "p"
	}))
}

func TestGeneratedNamesContainPodAndClaim(t *testing.T) {
	for _, tc := range []struct{ pod, claim, want string }{
		{"p", "gpu", "p-gpu-"},
		{strings.Repeat("p", 100), "gpu", strings.Repeat("p", 54) + "-g-"},
		{"p", strings.Repeat("c", 63), "p-" + strings.Repeat("c", 54) + "-"},
		{strings.Repeat("p", 60), strings.Repeat("c", 60), strings.Repeat("p", 28) + "-" + strings.Repeat("c", 27) + "-"},
	} {
		if got := generateName(tc.pod, tc.claim); got != tc.want {
			t.Errorf("%s, %s: %s (%d), want %s", tc.pod, tc.claim, got, len(got), tc.want)
		}
	}
}
