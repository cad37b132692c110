package pods

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestPrivilegedFindsContainersOfAllKinds(t *testing.T) {
	yes, no := true, false
	with := func(privileged *bool) []corev1.Container {
		return []corev1.Container{{Name: "plain"}, {SecurityContext: &corev1.SecurityContext{Privileged: privileged}}}
	}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: with(&yes)}}
	for name, tc := range map[string]struct {
		obj  runtime.Object
		want string
	}{
		"a pod without privileged containers": {&corev1.Pod{Spec: corev1.PodSpec{Containers: with(&no), InitContainers: with(nil)}}, ""},
		"a container of a pod":                {&corev1.Pod{Spec: corev1.PodSpec{Containers: with(&yes)}}, "spec.containers[1].securityContext.privileged"},
		"an init container":                   {&corev1.Pod{Spec: corev1.PodSpec{InitContainers: with(&yes)}}, "spec.initContainers[1].securityContext.privileged"},
		"an ephemeral container":              {&corev1.Pod{Spec: corev1.PodSpec{EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(with(&yes)[1])}}}}, "spec.ephemeralContainers[0].securityContext.privileged"},
		"a template of a workload":            {&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template}}, "spec.template.spec.containers[1].securityContext.privileged"},
		"a PodTemplate":                       {&corev1.PodTemplate{Template: template}, "template.spec.containers[1].securityContext.privileged"},
		"a CronJob":                           {&batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}}, "spec.jobTemplate.spec.template.spec.containers[1].securityContext.privileged"},
		"a workload without a template":       {&corev1.ReplicationController{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, err := range Privileged(tc.obj) {
				got += err.Field
			}
			if got != tc.want || !MakesPods(tc.obj) {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
	if MakesPods(&corev1.Secret{}) {
		t.Error("Secrets make no pods")
	}
}
