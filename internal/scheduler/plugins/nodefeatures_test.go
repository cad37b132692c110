package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

func TestAPodGoesToNodesThatDeclareTheFeaturesItNeeds(t *testing.T) {
	restartsAll := []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
	const restartAll, userNamespaces = "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"
	for name, tc := range map[string]struct {
		spec     corev1.PodSpec
		declared []string
		skips    bool
		fits     bool
	}{
		"a plain pod needs nothing": {spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}, skips: true},
		"a rule of a container needs its feature": {
			spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", RestartPolicyRules: restartsAll}}},
		},
		"a rule of an init container needs its feature": {
			spec:     corev1.PodSpec{InitContainers: []corev1.Container{{Name: "c", RestartPolicyRules: restartsAll}}},
			declared: []string{restartAll}, fits: true,
		},
		"one of two features is not enough": {
			spec: corev1.PodSpec{
				HostNetwork: true, HostUsers: new(bool),
				Containers: []corev1.Container{{Name: "c", RestartPolicyRules: restartsAll}},
			},
			declared: []string{restartAll},
		},
		"unknown features do not matter": {
			spec:     corev1.PodSpec{HostNetwork: true, HostUsers: new(bool)},
			declared: []string{"Aaa", userNamespaces, "Zzz"}, fits: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := nodeFeatures{"NodeDeclaredFeatures"}
			pod := framework.NewPodInfo(&corev1.Pod{Spec: tc.spec})
			state := framework.State{}
			if _, status := p.PreFilter(state, pod, nil); status.Skipped() || !status.OK() {
				if !tc.skips || !status.Skipped() {
					t.Fatalf("PreFilter: %v", status)
				}
				return
			} else if tc.skips {
				t.Fatal("PreFilter does not skip")
			}
			node := framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{DeclaredFeatures: tc.declared}})
			status := p.Filter(state, pod, node)
			if status.OK() != tc.fits {
				t.Fatalf("Filter: %v", status)
			}
			if !tc.fits && (status.Code != framework.UnschedulableAndUnresolvable || status.Reasons[0] != "node(s) didn't match Pod's required features") {
				t.Errorf("Filter: %d %v", status.Code, status.Reasons)
			}
		})
	}
}
