package local

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// localVolume is a PersistentVolume of this provisioner on the node "one".
func localVolume(name string, kind Kind, size, pending string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Annotations: map[string]string{
		NodeAnnotation: "one", FolderAnnotation: DefaultFolder, KindAnnotation: string(kind),
	}}}
	if pending != "" {
		v.Annotations[PendingAnnotation] = pending
	}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	v.Spec.Local = &corev1.LocalVolumeSource{Path: "/unused"}
	return v
}

// A controller such as StatefulSet replaces a deleted pod at once, so that its volume is hardly
// ever without a pod.
func TestAVolumeGrowsBeforeItsNextPodUsesIt(t *testing.T) {
	d := testDisk(t)
	a := New(Options{NodeName: "one", Folders: map[string]string{DefaultFolder: d.path}})
	kinds := []Kind{Plain}
	if canLoop() {
		kinds = append(kinds, Image, Block)
	}
	for _, kind := range kinds {
		v := localVolume("pvc-"+string(kind), kind, "20Mi", PendingMake)
		if err := d.make(t.Context(), wantedOf(v)); err != nil {
			t.Fatal(err)
		}
		v = localVolume(v.Name, kind, "40Mi", PendingGrow)
		if _, err := a.Prepare(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if r, err := d.read(v.Name); err != nil || r.Bytes != 40<<20 {
			t.Errorf("%s: the record is %+v, %v", kind, r, err)
		}
	}
}

// A growth that fails is reported, and costs no pod its start.
func TestAVolumeThatCannotGrowIsAttachedAsItIs(t *testing.T) {
	d := testDisk(t)
	a := New(Options{NodeName: "one", Folders: map[string]string{DefaultFolder: d.path}})
	needLoops(t)
	v := localVolume("pvc-1", Image, "20Mi", PendingMake)
	if err := d.make(t.Context(), wantedOf(v)); err != nil {
		t.Fatal(err)
	}
	v = localVolume(v.Name, Image, "8Ei", PendingGrow) // more than a file may have
	if _, err := a.Prepare(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if r, err := d.read(v.Name); err != nil || r.Bytes != 20<<20 {
		t.Errorf("the record is %+v, %v", r, err)
	}
}
