package pods_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func TestProjectionsOfDisabledFeaturesAreDropped(t *testing.T) {
	read := func() (*corev1.Pod, *strategy.Strategy) {
		obj, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Pod\nspec: {terminationGracePeriodSeconds: -5, containers: [{name: c, image: i}], volumes: [{name: v, projected: {sources: [{podCertificate: {}}, {clusterTrustBundle: {path: a}}]}}]}\n")
		return obj.(*corev1.Pod), s
	}
	obj, s := read()
	s.PrepareCreate(obj)
	if got := obj.Spec.Volumes[0].Projected.Sources; got[0] != (corev1.VolumeProjection{}) || got[1] != (corev1.VolumeProjection{}) {
		t.Errorf("%+v is kept", got)
	}
	if got := *obj.Spec.TerminationGracePeriodSeconds; got != 1 {
		t.Errorf("a pod has %d seconds to end, want 1", got)
	}
	obj, _ = read()
	old, _ := read()
	s.PrepareUpdate(obj, old)
	if got := obj.Spec.Volumes[0].Projected.Sources; got[0].PodCertificate == nil || got[1].ClusterTrustBundle == nil {
		t.Errorf("of %+v not all is kept, though it was there", got)
	}
}

func TestPodFieldsOfDisabledFeaturesAreDropped(t *testing.T) {
	manifest := "apiVersion: v1\nkind: PodTemplate\ntemplate: {spec: {schedulingGroup: {podGroupName: g}, containers: [{name: c, image: i, lifecycle: {stopSignal: SIGINT}}]}}\n"
	obj, s := resourcetest.Read(t, rules.For, manifest)
	s.PrepareCreate(obj)
	if spec := obj.(*corev1.PodTemplate).Template.Spec; spec.SchedulingGroup != nil || spec.Containers[0].Lifecycle != nil {
		t.Errorf("a new template has %+v, %+v", spec.SchedulingGroup, spec.Containers[0].Lifecycle)
	}
	old, _ := resourcetest.Read(t, rules.For, manifest)
	kept, _ := resourcetest.Read(t, rules.For, manifest)
	s.PrepareUpdate(kept, old)
	if spec := kept.(*corev1.PodTemplate).Template.Spec; spec.SchedulingGroup == nil || spec.Containers[0].Lifecycle == nil {
		t.Error("a template that had the fields has lost them")
	}
}
