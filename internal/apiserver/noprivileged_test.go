package apiserver

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

func TestPrivilegedContainersAreRefusedByNoPrivileged(t *testing.T) {
	s := newTestServer(t, withServices, func(c *Config) { c.NoPrivileged = true })
	ctx, c := t.Context(), s.ownClient()
	yes := true
	pod := func(name string, privileged *bool) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "a", Image: "b", SecurityContext: &corev1.SecurityContext{Privileged: privileged}}},
		}}
	}
	_, err := client.Create(ctx, c, pod("p", &yes))
	want := `Pod "p" is invalid: spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy`
	if !apierrors.IsInvalid(err) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	labels := map[string]string{"a": "b"}
	_, err = client.Create(ctx, c, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("", &yes).Spec},
	}})
	want = `Deployment.apps "d" is invalid: spec.template.spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy`
	if !apierrors.IsInvalid(err) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := client.Create(ctx, c, pod("q", nil)); err != nil {
		t.Errorf("a pod without privileges: %v", err)
	}
	if _, err := client.Create(ctx, newTestServer(t, withServices).ownClient(), pod("p", &yes)); err != nil {
		t.Errorf("a server that allows privileged pods: %v", err)
	}
}
