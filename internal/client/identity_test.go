package client

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestListsAreTheSameIfTheirObjectsAreInTheSameStates(t *testing.T) {
	pod := func(uid, version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: version}}
	}
	before := Identities([]*corev1.Pod{pod("a", "1"), pod("b", "2")})
	for name, tc := range map[string]struct {
		now  []*corev1.Pod
		same bool
	}{
		"copies":         {[]*corev1.Pod{pod("a", "1"), pod("b", "2")}, true},
		"one changed":    {[]*corev1.Pod{pod("a", "1"), pod("b", "3")}, false},
		"one is missing": {[]*corev1.Pod{pod("a", "1")}, false},
	} {
		if Same(before, tc.now) != tc.same {
			t.Errorf("%s: same is %v", name, !tc.same)
		}
	}
}
