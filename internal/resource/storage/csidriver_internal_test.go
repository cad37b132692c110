package storage

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
)

func TestFieldsOfDisabledFeaturesAreDropped(t *testing.T) {
	driver := func(set *bool) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: set}}
	}
	s := CSIDriverStrategy()
	created := driver(ptr.To(true))
	if s.PrepareCreate(created); created.Spec.PreventPodSchedulingIfMissing != nil {
		t.Error("a new object has the field")
	}
	kept := driver(ptr.To(true))
	if s.PrepareUpdate(kept, driver(ptr.To(false))); kept.Spec.PreventPodSchedulingIfMissing == nil {
		t.Error("an object that had the field has lost it")
	}
}
