package scheduler_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/resourceclaim"
)

// newDevices creates devices of the class "gpu" on a node.
func newDevices(t *testing.T, c *controllertest.Cluster, node string, change func(*resourcev1.Device), names ...string) {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: "d.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}}
	for _, name := range names {
		d := resourcev1.Device{Name: name}
		if change != nil {
			change(&d)
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	if _, err := client.Create(t.Context(), c.Client, s); err != nil {
		t.Fatal(err)
	}
}

func newDeviceClass(t *testing.T, c *controllertest.Cluster) {
	t.Helper()
	if _, err := client.Create(t.Context(), c.Client, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}); err != nil {
		t.Fatal(err)
	}
}

func requests() resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"},
	}}}}
}

func newResourceClaim(c *controllertest.Cluster, name string) *resourcev1.ResourceClaim {
	return controllertest.Create(c, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: requests()})
}

func newClaimingPod(c *controllertest.Cluster, name string, ref corev1.PodResourceClaim) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: controllertest.Template(name).Spec}
	ref.Name = "r"
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{ref}
	return controllertest.Create(c, p)
}

func byName(name string) corev1.PodResourceClaim {
	return corev1.PodResourceClaim{ResourceClaimName: &name}
}
func ofTemplate(name string) corev1.PodResourceClaim {
	return corev1.PodResourceClaim{ResourceClaimTemplateName: &name}
}

// resourceClaimIs waits until the claim has the device (node/device; "" means none) and this number
// of users.
func resourceClaimIs(t *testing.T, c *controllertest.Cluster, name, device string, users int) *resourcev1.ResourceClaim {
	t.Helper()
	var claim *resourcev1.ResourceClaim
	c.Eventually("the claim has "+device, func() (wrong string) {
		var err error
		if claim, err = client.Get[*resourcev1.ResourceClaim](t.Context(), c.Client, "default", name); err != nil {
			return err.Error()
		}
		have := ""
		if a := claim.Status.Allocation; a != nil {
			have = a.Devices.Results[0].Pool + "/" + a.Devices.Results[0].Device
		}
		if have != device || len(claim.Status.ReservedFor) != users {
			return fmt.Sprintf("%q %v", have, claim.Status.ReservedFor)
		}
		return ""
	})
	return claim
}

func TestAPodIsBoundAfterItsClaimGotADevice(t *testing.T) {
	c := start(t, []string{"a", "b"}, resourceclaim.Controller)
	newDeviceClass(t, c)
	controllertest.Create(c, &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: requests()}})
	newClaimingPod(c, "p", ofTemplate("t"))
	podIs(t, c, "p", "", "2 cannot allocate all claims")
	newDevices(t, c, "b", nil, "x")
	podIs(t, c, "p", "b", "")
	claim := controllertest.List[*resourcev1.ResourceClaim](c)[0]
	claim = resourceClaimIs(t, c, claim.Name, "b/x", 1)
	if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) || claim.Status.Allocation.AllocationTimestamp == nil {
		t.Errorf("the claim is %+v", claim)
	}
	// A second pod waits for the end of the first one.
	newClaimingPod(c, "q", ofTemplate("t"))
	podIs(t, c, "q", "", "2 cannot allocate all claims. still not schedulable, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.")
	p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", "p")
	if err != nil {
		t.Fatal(err)
	}
	controllertest.Retry(c, p, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "status")
	podIs(t, c, "q", "b", "")
}

func TestPodsShareAClaimAndItsNode(t *testing.T) {
	c := start(t, []string{"a", "b", "c"}, resourceclaim.Controller)
	newDeviceClass(t, c)
	newDevices(t, c, "b", nil, "x")
	newResourceClaim(c, "shared")
	for i := range 4 {
		newClaimingPod(c, fmt.Sprint("p", i), byName("shared"))
	}
	for i := range 4 {
		podIs(t, c, fmt.Sprint("p", i), "b", "")
	}
	resourceClaimIs(t, c, "shared", "b/x", 4)
}

func TestADeviceIsAllocatedOnceAmongManyPods(t *testing.T) {
	c := start(t, []string{"a", "b"}, resourceclaim.Controller)
	newDeviceClass(t, c)
	newDevices(t, c, "a", nil, "x", "y")
	newDevices(t, c, "b", nil, "x", "y")
	for i := range 6 {
		newResourceClaim(c, fmt.Sprint("c", i))
		newClaimingPod(c, fmt.Sprint("p", i), byName(fmt.Sprint("c", i)))
	}
	taken := map[string]int{}
	c.Eventually("four pods are bound", func() string {
		clear(taken)
		for _, claim := range controllertest.List[*resourcev1.ResourceClaim](c) {
			if a := claim.Status.Allocation; a != nil {
				taken[a.Devices.Results[0].Pool+"/"+a.Devices.Results[0].Device]++
			}
		}
		bound := 0
		for _, p := range controllertest.List[*corev1.Pod](c) {
			if p.Spec.NodeName != "" {
				bound++
			} else if condition := controller.PodCondition(p, corev1.PodScheduled); condition == nil {
				return "undecided: " + p.Name
			}
		}
		if bound != 4 {
			return fmt.Sprint(bound, taken)
		}
		return ""
	})
	for device, n := range taken {
		if n != 1 {
			t.Errorf("%s was given %d times", device, n)
		}
	}
}

func TestAClaimWithUnreachableDevicesGetsOthers(t *testing.T) {
	c := start(t, []string{"a"}, resourceclaim.Controller)
	newDeviceClass(t, c)
	newDevices(t, c, "a", nil, "x")
	claim := newResourceClaim(c, "c")
	controllertest.Retry(c, claim, func(rc *resourcev1.ResourceClaim) {
		rc.Status.Allocation = &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d.example.com", Pool: "gone", Device: "x"}}},
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"gone"}}},
			}}},
		}
	}, "status")
	newClaimingPod(c, "p", byName("c"))
	podIs(t, c, "p", "a", "")
	resourceClaimIs(t, c, "c", "a/x", 1)
}

func TestAPodWaitsForItsDevicesBindingConditions(t *testing.T) {
	c := start(t, []string{"a"}, resourceclaim.Controller)
	newDeviceClass(t, c)
	newDevices(t, c, "a", func(d *resourcev1.Device) {
		d.BindingConditions, d.BindingFailureConditions = []string{"example.com/attached"}, []string{"example.com/broken"}
	}, "x")
	newResourceClaim(c, "c")
	newClaimingPod(c, "p", byName("c"))
	claim := resourceClaimIs(t, c, "c", "a/x", 1)
	report := func(condition string) {
		controllertest.Retry(c, claim, func(rc *resourcev1.ResourceClaim) {
			rc.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d.example.com", Pool: "a", Device: "x", Conditions: []metav1.Condition{
				{Type: condition, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()},
			}}}
		}, "status")
	}
	report("example.com/broken")
	podIs(t, c, "p", "", "failed binding conditions check: device x: example.com/broken")
	resourceClaimIs(t, c, "c", "a/x", 1) // decided again
	report("example.com/attached")
	podIs(t, c, "p", "a", "")
}
