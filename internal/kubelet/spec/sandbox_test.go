package spec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestThePauseProcessHasASeccompProfileWhereOthersCanReachIt(t *testing.T) {
	shared := true
	for name, c := range map[string]struct {
		pod  corev1.PodSpec
		want runtimeapi.SecurityProfile_ProfileType
	}{
		"alone in its process namespace":        {corev1.PodSpec{}, runtimeapi.SecurityProfile_Unconfined},
		"the containers share its namespace":    {corev1.PodSpec{ShareProcessNamespace: &shared}, runtimeapi.SecurityProfile_RuntimeDefault},
		"everything is in the node's namespace": {corev1.PodSpec{HostPID: true}, runtimeapi.SecurityProfile_RuntimeDefault},
		"the pod names a profile for all of it": {corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}}, runtimeapi.SecurityProfile_RuntimeDefault},
	} {
		config := Sandbox(&corev1.Pod{Spec: c.pod}, SandboxOptions{})
		if got := config.Linux.SecurityContext.Seccomp.ProfileType; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
