package volume_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
