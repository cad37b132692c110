package namespace_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/namespace"
)

func create(t *testing.T, c *controllertest.Cluster, name string) {
	t.Helper()
	if _, err := client.Create(t.Context(), c.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

func gone(t *testing.T, c *controllertest.Cluster, name string) func() string {
	return func() string {
		ns, err := client.Get[*corev1.Namespace](t.Context(), c.Client, "", name)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%v %+v", err, ns)
	}
}

func TestADeletedNamespaceIsEmptiedAndRemoved(t *testing.T) {
	c := controllertest.New(t)
	c.Run(namespace.Namespace)
	c.RunPods("node", nil)
	create(t, c, "crowded")
	controllertest.Create(c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "crowded", Name: "a"}})
	controllertest.Create(c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stays"}})
	template := controllertest.Template("p")
	controllertest.Create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "crowded", Name: "p"}, Spec: template.Spec})
	if err := client.Delete[*corev1.Namespace](t.Context(), c.Client, "", "crowded", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the namespace is deleted", gone(t, c, "crowded"))
	if left := controllertest.List[*corev1.ConfigMap](c); len(left) != 1 || left[0].Name != "stays" {
		t.Errorf("config maps left: %v", left)
	}
}

func TestPodsAreDeletedBeforeOtherKinds(t *testing.T) {
	c := controllertest.New(t)
	c.Run(namespace.Namespace)
	c.RunPods("node", nil)
	create(t, c, "ordered")
	template := controllertest.Template("p")
	controllertest.Create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ordered", Name: "p", Finalizers: []string{"example.com/hold"}}, Spec: template.Spec})
	controllertest.Create(c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ordered", Name: "a"}})
	if err := client.Delete[*corev1.Namespace](t.Context(), c.Client, "", "ordered", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the conditions name the remaining pods", func() string {
		ns, err := client.Get[*corev1.Namespace](t.Context(), c.Client, "", "ordered")
		if err != nil {
			return err.Error()
		}
		for _, want := range []string{"NamespaceDeletionContentFailure ContentDeletionFailed", "NamespaceContentRemaining SomeResourcesRemain", "NamespaceFinalizersRemaining SomeFinalizersRemain"} {
			if !slices.ContainsFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool {
				return c.Status == corev1.ConditionTrue && string(c.Type)+" "+c.Reason == want
			}) {
				return fmt.Sprintf("no %s in %+v", want, ns.Status)
			}
		}
		return ""
	})
	if _, err := client.Get[*corev1.ConfigMap](t.Context(), c.Client, "ordered", "a"); err != nil {
		t.Fatalf("the config map went before the pod: %v", err)
	}
	p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "ordered", "p")
	if err != nil {
		t.Fatal(err)
	}
	controllertest.Retry(c, p, func(p *corev1.Pod) { p.Finalizers = nil })
	c.Eventually("the namespace is deleted", gone(t, c, "ordered"))
}
