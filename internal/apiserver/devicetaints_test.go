package apiserver

import (
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

func TestDevicesSaySinceWhenTheyAreTainted(t *testing.T) {
	s := newTestServer(t, func(*Config) {})
	node := "n"
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d.example", NodeName: &node, Pool: resourcev1.ResourcePool{Name: "p", Generation: 1, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "d", Taints: []resourcev1.DeviceTaint{{Key: "a", Effect: resourcev1.DeviceTaintEffectNoSchedule}}}},
	}}
	made, err := client.Create(t.Context(), s.own(), slice)
	if err != nil {
		t.Fatal(err)
	}
	first := made.Spec.Devices[0].Taints[0].TimeAdded
	if first == nil || time.Since(first.Time) > time.Hour {
		t.Fatalf("the taint was added at %v", first)
	}
	made = made.DeepCopy()
	earlier := metav1.NewTime(first.Add(-24 * time.Hour))
	made.Spec.Devices[0].Taints[0].TimeAdded = &earlier
	made.Spec.Devices[0].Taints = append(made.Spec.Devices[0].Taints, resourcev1.DeviceTaint{Key: "b", Effect: resourcev1.DeviceTaintEffectNoExecute})
	if made, err = client.Update(t.Context(), s.own(), made); err != nil {
		t.Fatal(err)
	}
	taints := made.Spec.Devices[0].Taints
	if !taints[0].TimeAdded.Equal(&earlier) || taints[1].TimeAdded == nil {
		t.Errorf("what the writer says does not stand, or the new taint has no time: %v", taints)
	}
}
