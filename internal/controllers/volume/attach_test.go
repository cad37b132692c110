package volume_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/volume"
)

// podOn creates a pod with the claim, bound to the node.
func podOn(t *testing.T, c *controllertest.Cluster, name, node, claim string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: controllertest.Template(name).Spec}
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	p.Spec.NodeName = node
	return controllertest.Create(c, p)
}

func attachments(t *testing.T, c *controllertest.Cluster) []*storagev1.VolumeAttachment {
	t.Helper()
	return controllertest.List[*storagev1.VolumeAttachment](c)
}

func TestVolumesAreAttachedWhereTheyAreUsed(t *testing.T) {
	c := controllertest.New(t)
	c.Run(volume.Binder, volume.AttachDetach)
	one, two := controllertest.Node(c, "one", nil), controllertest.Node(c, "two", nil)
	newVolume(t, c, "disk", "1Gi", func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "vol-1"}}
	})
	newClaim(c, "data", "1Gi", "manual")
	c.Eventually("the claim is bound", claimIs(t, c, "data", corev1.ClaimBound, "disk"))
	first := podOn(t, c, "first", "one", "data")
	var a *storagev1.VolumeAttachment
	c.Eventually("the volume gets an attachment to node one", func() string {
		list := attachments(t, c)
		if len(list) != 1 || list[0].Spec.NodeName != "one" || list[0].Spec.Attacher != "disk.example.com" || *list[0].Spec.Source.PersistentVolumeName != "disk" {
			return fmt.Sprint(list)
		}
		a = list[0]
		return ""
	})
	controllertest.Retry(c, a, func(a *storagev1.VolumeAttachment) { a.Status.Attached = true }, "status")
	c.Eventually("node one reports the volume", func() string {
		n, err := client.Get[*corev1.Node](t.Context(), c.Client, "", "one")
		if err != nil || len(n.Status.VolumesAttached) != 1 || n.Status.VolumesAttached[0].Name != "kubernetes.io/csi/disk.example.com^vol-1" {
			return fmt.Sprint(n.Status.VolumesAttached, err)
		}
		return ""
	})
	// A second node cannot have the volume while the first one does.
	podOn(t, c, "second", "two", "data")
	c.Eventually("the second pod gets an Event", func() string {
		for _, e := range c.Events.List() {
			if e == `Warning FailedAttachVolume Multi-Attach error for volume "disk" Volume is already exclusively attached to one node and can't be attached to another` {
				return ""
			}
		}
		return fmt.Sprint(c.Events.List())
	})
	// The volume stays while the node has it mounted, and moves afterwards.
	controllertest.Retry(c, one, func(n *corev1.Node) {
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/disk.example.com^vol-1"}
	}, "status")
	now := int64(0)
	if err := client.Delete[*corev1.Pod](t.Context(), c.Client, "default", first.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	controllertest.Retry(c, two, func(n *corev1.Node) { n.Status.VolumesInUse = []corev1.UniqueVolumeName{"other"} }, "status")
	if list := attachments(t, c); len(list) != 1 || list[0].Spec.NodeName != "one" || list[0].DeletionTimestamp != nil {
		t.Fatalf("detached under a mount: %v", list)
	}
	controllertest.Retry(c, one, func(n *corev1.Node) { n.Status.VolumesInUse = nil }, "status")
	c.Eventually("the volume moves to node two", func() string {
		list := attachments(t, c)
		if len(list) != 1 || list[0].Spec.NodeName != "two" {
			return fmt.Sprint(list)
		}
		return ""
	})
}

func TestVolumesOfDriversWithoutAttachmentAreNotAttached(t *testing.T) {
	c := controllertest.New(t)
	no := false
	if _, err := client.Create(t.Context(), c.Client, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "nfs.example.com"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}); err != nil {
		t.Fatal(err)
	}
	c.Run(volume.Binder, volume.AttachDetach)
	controllertest.Node(c, "one", nil)
	for name, driver := range map[string]string{"share": "nfs.example.com", "disk": "disk.example.com"} {
		newVolume(t, c, name, "1Gi", func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: name}
			v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}}
		})
		newClaim(c, name, "1Gi", "manual")
		c.Eventually("bound", claimIs(t, c, name, corev1.ClaimBound, name))
		podOn(t, c, name, "one", name)
	}
	c.Eventually("only the disk gets an attachment", func() string {
		list := attachments(t, c)
		if len(list) != 1 || *list[0].Spec.Source.PersistentVolumeName != "disk" {
			return fmt.Sprint(list)
		}
		return ""
	})
}

// attachedDisk binds a claim to a CSI volume and has a pod on node one use it. The node's status
// lists the volume as in use.
func attachedDisk(t *testing.T, c *controllertest.Cluster) (node *corev1.Node, p *corev1.Pod) {
	t.Helper()
	node = controllertest.Node(c, "one", nil)
	newVolume(t, c, "disk", "1Gi", func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "vol-1"}}
	})
	newClaim(c, "data", "1Gi", "manual")
	c.Eventually("the claim is bound", claimIs(t, c, "data", corev1.ClaimBound, "disk"))
	p = podOn(t, c, "first", "one", "data")
	c.Eventually("the volume gets an attachment", func() string {
		if list := attachments(t, c); len(list) != 1 {
			return fmt.Sprint(list)
		}
		return ""
	})
	controllertest.Retry(c, node, func(n *corev1.Node) {
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/disk.example.com^vol-1"}
	}, "status")
	return node, p
}

func remove(t *testing.T, c *controllertest.Cluster, p *corev1.Pod) {
	t.Helper()
	now := int64(0)
	if err := client.Delete[*corev1.Pod](t.Context(), c.Client, p.Namespace, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
}

func detached(t *testing.T, c *controllertest.Cluster) func() string {
	return func() string {
		if list := attachments(t, c); len(list) != 0 {
			return fmt.Sprint(list)
		}
		return ""
	}
}

func TestADeadNodeLosesItsVolumesAfterSixMinutes(t *testing.T) {
	c := controllertest.New(t)
	now := clocktesting.NewFakeClock(time.Now())
	c.Clock = now
	c.Run(volume.Binder, volume.AttachDetach)
	node, p := attachedDisk(t, c)
	controllertest.Retry(c, node, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, "status")
	remove(t, c, p)
	// The controller waits for the end of the six minutes.
	c.Eventually("the controller waits", func() string {
		if !now.HasWaiters() {
			return "it does not"
		}
		return ""
	})
	for range 5 {
		now.Step(time.Minute)
		if list := attachments(t, c); len(list) != 1 || list[0].DeletionTimestamp != nil {
			t.Fatalf("detached too early: %v", list)
		}
	}
	c.Eventually("the volume is detached", func() string {
		now.Step(time.Minute)
		return detached(t, c)()
	})
}

func TestANodeOutOfServiceLosesItsVolumesAtOnce(t *testing.T) {
	c := controllertest.New(t)
	c.Clock = clocktesting.NewFakeClock(time.Now())
	c.Run(volume.Binder, volume.AttachDetach)
	node, p := attachedDisk(t, c)
	remove(t, c, p)
	controllertest.Retry(c, node, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
	})
	c.Eventually("the volume is detached", detached(t, c))
}

func TestAReadyNodeKeepsAMountedVolumeForAnyTime(t *testing.T) {
	c := controllertest.New(t)
	now := clocktesting.NewFakeClock(time.Now())
	c.Clock = now
	c.Run(volume.Binder, volume.AttachDetach)
	node, p := attachedDisk(t, c)
	remove(t, c, p)
	now.Step(time.Hour)
	// Another attachment shows that the controller has looked at the node again.
	newVolume(t, c, "second", "1Gi", func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "vol-2"}}
	})
	newClaim(c, "more", "1Gi", "manual")
	c.Eventually("the second claim is bound", claimIs(t, c, "more", corev1.ClaimBound, "second"))
	podOn(t, c, "second", node.Name, "more")
	c.Eventually("both volumes are attached", func() string {
		if list := attachments(t, c); len(list) != 2 || list[0].DeletionTimestamp != nil || list[1].DeletionTimestamp != nil {
			return fmt.Sprint(list)
		}
		return ""
	})
}

func TestAVolumeIsDetachedWhenItsDriverNeedsNoAttachment(t *testing.T) {
	c := controllertest.New(t)
	c.Run(volume.Binder, volume.AttachDetach)
	node, _ := attachedDisk(t, c)
	controllertest.Retry(c, node, func(n *corev1.Node) { n.Status.VolumesInUse = nil }, "status")
	no := false
	controllertest.Create(c, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disk.example.com"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}})
	c.Eventually("the volume is detached", detached(t, c))
}
