package controller

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
)

func TestANegativeLimitKeepsAllRevisions(t *testing.T) {
	// There is no client, so any deletion would panic.
	all := []*appsv1.ControllerRevision{{Revision: 1}, {Revision: 2}}
	for _, revisions := range [][]*appsv1.ControllerRevision{all, nil} {
		if err := (History{}).Trim(t.Context(), revisions, ptr.To(int32(-1)), func(*appsv1.ControllerRevision) bool { return false }); err != nil {
			t.Error(err)
		}
	}
}
