package apiserver

import (
	"sync/atomic"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

func TestDeviceTaintsGetATime(t *testing.T) {
	s := newTestServer(t, func(*Config) {})
	node := "n"
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d.example", NodeName: &node, Pool: resourcev1.ResourcePool{Name: "p", Generation: 1, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "d", Taints: []resourcev1.DeviceTaint{{Key: "a", Effect: resourcev1.DeviceTaintEffectNoSchedule}}}},
	}}
	made, err := client.Create(t.Context(), s.ownClient(), slice)
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
	if made, err = client.Update(t.Context(), s.ownClient(), made); err != nil {
		t.Fatal(err)
	}
	taints := made.Spec.Devices[0].Taints
	if !taints[0].TimeAdded.Equal(&earlier) || taints[1].TimeAdded == nil {
		t.Errorf("the writer's time was changed, or the new taint has no time: %v", taints)
	}
}

// A write is a change if it sets another time of a taint.
func TestDeviceTaintOfTheSameSecondIsNoChange(t *testing.T) {
	var later atomic.Int64
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newTestServer(t, func(c *Config) { c.Clock = func() time.Time { return start.Add(time.Duration(later.Load())) } })
	const path = "/apis/resource.k8s.io/v1/resourceslices"
	body := func(attributes string) string {
		return `{"metadata":{"name":"s"},"spec":{"driver":"d.example","nodeName":"n","pool":{"name":"p","generation":1,"resourceSliceCount":1},"devices":[{"name":"d",` + attributes + `"taints":[{"key":"a","effect":"NoSchedule"}]}]}}`
	}
	merge := []string{"Content-Type", "application/merge-patch+json"}
	for _, one := range []struct {
		after time.Duration
		answerCase
	}{
		{0, answerCase{"a new one", "POST", path, body(""), nil, 201, `"generation":1,"creation`, "", ""}},
		{0, answerCase{"the same taint again", "PATCH", path + "/s", body(""), merge, 200, `"generation":1,"creation`, "", ""}},
		{time.Second, answerCase{"the same taint a second later", "PATCH", path + "/s", body(""), merge, 200, `"generation":2,"creation`, "", ""}},
		{time.Second, answerCase{"a field that is dropped is a change", "PATCH", path + "/s", body(`"attributes":{"m":{"string":"a","ints":[1]}},`), merge, 200, `"generation":3,"creation`, `"ints"`, ""}},
		{time.Second, answerCase{"a field that is dropped is a change again", "PATCH", path + "/s", body(`"attributes":{"m":{"string":"a","ints":[1]}},`), merge, 200, `"generation":4,"creation`, `"ints"`, ""}},
	} {
		later.Store(int64(one.after))
		one.check(t, s)
	}
}
