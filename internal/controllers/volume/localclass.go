package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/volume/local"
)

const (
	firstClassKey = "/first-class"
	// FirstClass is the name of the class that a new cluster has.
	FirstClass        = "local"
	defaultAnnotation = "storageclass.kubernetes.io/is-default-class"
	// classMarker is a ConfigMap in kube-system. It records that FirstClass was made once, so that
	// a class that the user deleted does not come back.
	classMarker = "knarr-local-storage"
)

// firstClass makes the class of a new cluster. It is the default class unless there is one.
func (l *localVolumes) firstClass(ctx context.Context) error {
	_, err := client.Get[*corev1.ConfigMap](ctx, l.env.Client, metav1.NamespaceSystem, classMarker)
	if err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	class := newFirstClass()
	for _, other := range l.classes.List("", nil) {
		if other.Annotations[defaultAnnotation] == "true" {
			delete(class.Annotations, defaultAnnotation)
		}
	}
	if _, err := client.Create(ctx, l.env.Client, class); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = client.Create(ctx, l.env.Client, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: classMarker},
		Data: map[string]string{
			"note": "knarr made the StorageClass " + FirstClass + " once. It makes it again only if this ConfigMap is gone.",
		},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func newFirstClass() *storagev1.StorageClass {
	wait, remove, yes := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete, true
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: FirstClass, Annotations: map[string]string{
			defaultAnnotation:           "true",
			"kubernetes.io/description": "Volumes on the disk of the node that runs the first pod of the claim.",
		}},
		Provisioner: local.Provisioner, VolumeBindingMode: &wait, ReclaimPolicy: &remove, AllowVolumeExpansion: &yes,
	}
}

// driver keeps a CSIDriver while a class needs it: it tells schedulers to look at capacities.
func (l *localVolumes) driver(ctx context.Context) error {
	if len(l.ourClasses()) == 0 {
		return nil
	}
	if have, ok := l.drivers.Get("", local.Provisioner); ok {
		if have.Spec.StorageCapacity != nil && *have.Spec.StorageCapacity {
			return nil
		}
		changed := have.DeepCopy()
		changed.Spec.StorageCapacity = new(bool)
		*changed.Spec.StorageCapacity = true
		_, err := client.Update(ctx, l.env.Client, changed)
		return err
	}
	yes, no := true, false
	_, err := client.Create(ctx, l.env.Client, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: local.Provisioner},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired: &no, StorageCapacity: &yes, VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
		},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (l *localVolumes) ourClasses() []*storagev1.StorageClass {
	var ours []*storagev1.StorageClass
	for _, c := range l.classes.List("", nil) {
		if c.Provisioner == local.Provisioner {
			ours = append(ours, c)
		}
	}
	return ours
}
