package volume_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/gc"
	"github.com/knarr-project/knarr/internal/controllers/volume"
)

func start(t *testing.T) *controllertest.Cluster {
	c := controllertest.New(t)
	c.Run(volume.Binder, volume.ClaimProtection, volume.VolumeProtection, volume.ClassProtection, volume.Ephemeral, gc.Controller)
	return c
}

func newVolume(t *testing.T, c *controllertest.Cluster, name, size string, change func(*corev1.PersistentVolume)) {
	t.Helper()
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "manual",
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/x"}},
	}}
	if change != nil {
		change(v)
	}
	if _, err := client.Create(t.Context(), c.Client, v); err != nil {
		t.Fatal(err)
	}
}

func newClaim(c *controllertest.Cluster, name, size, class string) *corev1.PersistentVolumeClaim {
	return controllertest.Create(c, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
	}})
}

func claimIs(t *testing.T, c *controllertest.Cluster, name string, phase corev1.PersistentVolumeClaimPhase, volume string) func() string {
	return func() string {
		p, err := client.Get[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", name)
		if err != nil || p.Status.Phase != phase || p.Spec.VolumeName != volume {
			return fmt.Sprintf("%v %s %q", err, p.Status.Phase, p.Spec.VolumeName)
		}
		return ""
	}
}

func volumeIs(t *testing.T, c *controllertest.Cluster, name string, phase corev1.PersistentVolumePhase) func() string {
	return func() string {
		v, err := client.Get[*corev1.PersistentVolume](t.Context(), c.Client, "", name)
		if err != nil || v.Status.Phase != phase {
			return fmt.Sprintf("%v %s", err, v.Status.Phase)
		}
		return ""
	}
}

func TestAClaimGetsTheSmallestVolumeThatFits(t *testing.T) {
	c := start(t)
	newVolume(t, c, "large", "10Gi", nil)
	newVolume(t, c, "small", "2Gi", nil)
	newVolume(t, c, "tiny", "1Gi", nil)
	newVolume(t, c, "other", "2Gi", func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "other" })
	c.Eventually("available", volumeIs(t, c, "small", corev1.VolumeAvailable))
	claim := newClaim(c, "data", "2Gi", "manual")
	c.Eventually("bound", claimIs(t, c, "data", corev1.ClaimBound, "small"))
	c.Eventually("bound", volumeIs(t, c, "small", corev1.VolumeBound))
	v, _ := client.Get[*corev1.PersistentVolume](t.Context(), c.Client, "", "small")
	if v.Spec.ClaimRef.UID != claim.UID {
		t.Errorf("the volume is bound to %+v", v.Spec.ClaimRef)
	}
	if err := client.Delete[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("released", volumeIs(t, c, "small", corev1.VolumeReleased))
}

func TestAClaimBoundBeforeItsVolumeWaitsForIt(t *testing.T) {
	c := start(t)
	newClaim(c, "data", "1Gi", "manual")
	c.Eventually("pending", claimIs(t, c, "data", corev1.ClaimPending, ""))
	newVolume(t, c, "late", "1Gi", nil)
	c.Eventually("bound", claimIs(t, c, "data", corev1.ClaimBound, "late"))
}

func TestADelayedClaimWaitsForItsPodAndThenForItsProvisioner(t *testing.T) {
	c := start(t)
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	if _, err := client.Create(t.Context(), c.Client, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "example.com/local", VolumeBindingMode: &wait}); err != nil {
		t.Fatal(err)
	}
	newVolume(t, c, "v", "1Gi", func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "local" })
	claim := newClaim(c, "data", "1Gi", "local")
	c.Eventually("pending", claimIs(t, c, "data", corev1.ClaimPending, ""))
	controllertest.Retry(c, claim, func(p *corev1.PersistentVolumeClaim) {
		p.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "node"}
	})
	c.Eventually("its provisioner gets the request", func() string {
		p, _ := client.Get[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", "data")
		if p.Annotations["volume.kubernetes.io/storage-provisioner"] != "example.com/local" {
			return fmt.Sprint(p.Annotations)
		}
		return ""
	})
}

func TestAClaimInUseIsKeptUntilItsPodIsGone(t *testing.T) {
	c := start(t)
	claim := newClaim(c, "data", "1Gi", "manual")
	template := controllertest.Template("p")
	template.Spec.NodeName = "node"
	template.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	c.Eventually("it is protected", func() string {
		p, _ := client.Get[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", claim.Name)
		if len(p.Finalizers) == 0 {
			return "not yet"
		}
		return ""
	})
	controllertest.Create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: template.Spec})
	if err := client.Delete[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", "data"); err != nil {
		t.Fatalf("it did not wait: %v", err)
	}
	now := int64(0)
	if err := client.Delete[*corev1.Pod](t.Context(), c.Client, "default", "p", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("it is deleted", func() string {
		_, err := client.Get[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", "data")
		if apierrors.IsNotFound(err) {
			return ""
		}
		return "still there"
	})
}

func TestTheClaimOfAnEphemeralVolumeIsDeletedWithItsPod(t *testing.T) {
	c := start(t)
	template := controllertest.Template("p")
	template.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
	}}}}}
	controllertest.Create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: template.Spec})
	claims := func(want int) func() string {
		return func() string {
			if n := len(controllertest.List[*corev1.PersistentVolumeClaim](c)); n != want {
				return fmt.Sprint(n)
			}
			return ""
		}
	}
	c.Eventually("a claim", claims(1))
	now := int64(0)
	if err := client.Delete[*corev1.Pod](t.Context(), c.Client, "default", "p", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("no claim", claims(0))
}

func TestAnAttributesClassStaysUntilNoVolumeHasIt(t *testing.T) {
	c := start(t)
	for _, name := range []string{"used", "free"} {
		class := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: "csi.example.com", Parameters: map[string]string{"iops": "100"}}
		if _, err := client.Create(t.Context(), c.Client, class); err != nil {
			t.Fatal(err)
		}
	}
	used := "used"
	newVolume(t, c, "disk", "1Gi", func(v *corev1.PersistentVolume) {
		v.Spec.VolumeAttributesClassName = &used
		v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "disk"}}
	})
	class := func(name string) (*storagev1.VolumeAttributesClass, error) {
		return client.Get[*storagev1.VolumeAttributesClass](t.Context(), c.Client, "", name)
	}
	isProtected := func(name string) func() string {
		return func() string {
			if got, err := class(name); err != nil || len(got.Finalizers) != 1 {
				return fmt.Sprint(err)
			}
			return ""
		}
	}
	isGone := func(name string) func() string {
		return func() string {
			if _, err := class(name); !apierrors.IsNotFound(err) {
				return fmt.Sprint(err)
			}
			return ""
		}
	}
	for _, name := range []string{"used", "free"} {
		c.Eventually("protected", isProtected(name))
		if err := client.Delete[*storagev1.VolumeAttributesClass](t.Context(), c.Client, "", name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.Eventually("the unused class is deleted", isGone("free"))
	if got, err := class("used"); err != nil || got.DeletionTimestamp == nil {
		t.Fatalf("the used one: %+v, %v; want it there, being deleted", got, err)
	}
	if err := client.Delete[*corev1.PersistentVolume](t.Context(), c.Client, "", "disk", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the used class is deleted with its volume", isGone("used"))
}

func TestManyClaimsGetDifferentVolumes(t *testing.T) {
	const n = 30
	c := start(t)
	for i := range n {
		newClaim(c, fmt.Sprint("c", i), "1Gi", "manual")
		newVolume(t, c, fmt.Sprint("v", i), "1Gi", nil)
	}
	for i := range n {
		c.Eventually("bound", func() string {
			p, err := client.Get[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", fmt.Sprint("c", i))
			if err != nil || p.Status.Phase != corev1.ClaimBound {
				return fmt.Sprint(err, p.Status.Phase)
			}
			return ""
		})
	}
	owner := map[string]string{}
	for _, p := range controllertest.List[*corev1.PersistentVolumeClaim](c) {
		v, err := client.Get[*corev1.PersistentVolume](t.Context(), c.Client, "", p.Spec.VolumeName)
		if err != nil || v.Spec.ClaimRef.UID != p.UID || owner[v.Name] != "" {
			t.Errorf("%s has volume %s, which %v and %q have: %v", p.Name, p.Spec.VolumeName, v.Spec.ClaimRef, owner[v.Name], err)
		}
		owner[p.Spec.VolumeName] = p.Name
	}
}
