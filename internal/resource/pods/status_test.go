package pods_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestTheQOSClassOfAPodIsImmutable(t *testing.T) {
	const best, burstable, guaranteed = corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed
	const immutable = "status.qosClass: Invalid value: "
	cases := []struct {
		name              string
		stored, told, now corev1.PodQOSClass
		want              []string
	}{
		{"no class in the update", guaranteed, "", guaranteed, nil},
		{"the stored class", guaranteed, guaranteed, guaranteed, nil},
		{"the class of the spec, with another one stored", guaranteed, best, best, []string{immutable}},
		{"another class", guaranteed, burstable, burstable, []string{immutable}},
		{"no class stored and none in the update", "", "", best, nil},
		{"no class stored and that of the spec", "", best, best, nil},
		{"no class stored and another one", "", burstable, burstable, []string{immutable}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}]}\n")
			old := obj.DeepCopyObject().(*corev1.Pod)
			p := obj.(*corev1.Pod)
			old.Status.QOSClass, p.Status.QOSClass = c.stored, c.told
			s.PrepareStatus(p, old)
			if p.Status.QOSClass != c.now {
				t.Errorf("the class becomes %q, want %q", p.Status.QOSClass, c.now)
			}
			resourcetest.Expect(t, s.ValidateStatus(p, old), c.want...)
		})
	}
}

func TestPodStatusDropsVolumeStatuses(t *testing.T) {
	old, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Pod\n")
	obj, _ := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Pod\nstatus: {containerStatuses: [{name: c, volumeMounts: [{name: v, mountPath: /a, volumeStatus: {image: {imageRef: a}}}]}]}\n")
	s.PrepareStatus(obj, old)
	if mount := obj.(*corev1.Pod).Status.ContainerStatuses[0].VolumeMounts[0]; mount.VolumeStatus != nil || mount.Name != "v" {
		t.Errorf("got %+v", mount)
	}
}

func TestHostIPIsTheFirstOfHostIPs(t *testing.T) {
	pod := func(status string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}]}\nstatus: {" + status + "}\n"
	}
	for status, want := range map[string][]string{
		"":                  nil,
		"hostIP: 192.0.2.1": nil,
		"hostIP: 192.0.2.1, hostIPs: [{ip: 192.0.2.1}]": nil,
		"hostIP: 192.0.2.2, hostIPs: [{ip: 192.0.2.1}]": {"status.hostIPs[0].ip: Invalid value: \"192.0.2.1\": must be equal to `hostIP`"},
		"hostIPs: [{ip: 192.0.2.1}]":                    {"status.hostIPs[0].ip: Invalid value: \"192.0.2.1\": must be equal to `hostIP`"},
	} {
		old, s := resourcetest.Read(t, rules.For, pod(""))
		obj, _ := resourcetest.Read(t, rules.For, pod(status))
		t.Run(status, func(t *testing.T) { resourcetest.Expect(t, s.ValidateStatus(obj, old), want...) })
	}
}
