package scheduling

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
)

func TestAGroupStaysUntilItsPodsHaveEnded(t *testing.T) {
	c := controllertest.New(t, "GenericWorkload")
	c.Run(PodGroupProtection)
	newGroup := func(name string) {
		g := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{finalizer}}}
		g.Spec.SchedulingPolicy.Basic = &schedulingv1alpha2.BasicSchedulingPolicy{}
		controllertest.Create(c, g)
	}
	newPod := func(name, group string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: controllertest.Template(name).Spec}
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
		return controllertest.Create(c, p)
	}
	remove := func(name string) {
		if err := client.Delete[*schedulingv1alpha2.PodGroup](t.Context(), c.Client, "default", name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(name string) {
		t.Helper()
		c.Eventually(name+" is gone", func() string {
			_, err := client.Get[*schedulingv1alpha2.PodGroup](t.Context(), c.Client, "default", name)
			if !apierrors.IsNotFound(err) {
				return "it is there"
			}
			return ""
		})
	}
	newGroup("used")
	newGroup("free")
	ending, deleted := newPod("ending", "used"), newPod("deleted", "used")
	remove("used")
	remove("free")
	gone("free")
	controllertest.Retry(c, ending, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "status")
	if _, err := client.Get[*schedulingv1alpha2.PodGroup](t.Context(), c.Client, "default", "used"); err != nil {
		t.Fatalf("a group with a pod: %v", err)
	}
	if err := client.Delete[*corev1.Pod](t.Context(), c.Client, "default", deleted.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	gone("used")
}
