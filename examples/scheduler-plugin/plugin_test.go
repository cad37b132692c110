package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func encode(t *testing.T, obj interface{ Marshal() ([]byte, error) }) object {
	t.Helper()
	content, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func podWith(t *testing.T, annotations map[string]string) object {
	return encode(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Annotations: annotations}})
}

func nodeWith(t *testing.T, labels map[string]string) object {
	return encode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: labels}})
}

func TestAPodRunsOnlyOnNodesWithItsDisk(t *testing.T) {
	ssd := podWith(t, map[string]string{"other": "x", diskKey: "ssd"})
	for _, c := range []struct {
		name   string
		pod    object
		labels map[string]string
		fits   bool
	}{
		{"the same disk", ssd, map[string]string{diskKey: "ssd"}, true},
		{"another disk", ssd, map[string]string{diskKey: "hdd"}, false},
		{"no disk", ssd, nil, false},
		{"a pod without a wish", podWith(t, nil), nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := read(nodeWith(t, c.labels))
			if reason := refuse(c.pod.annotation(diskKey), &node); (reason == "") != c.fits {
				t.Errorf("the reason is %q", reason)
			}
		})
	}
}

func TestPointsAreTheNodesLabel(t *testing.T) {
	for label, want := range map[string]int{"": 0, "7": 7, "100": 100, "999": 100, "-1": 0, "many": 0} {
		if got := read(nodeWith(t, map[string]string{pointsKey: label})).points; got != want {
			t.Errorf("the label %q gives %d points, want %d", label, got, want)
		}
	}
}
