package gc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/gc"
)

func start(t *testing.T) *controllertest.Cluster {
	c := controllertest.New(t)
	c.Run(gc.Controller)
	return c
}

func configMap(c *controllertest.Cluster, name string, finalizers []string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	return controllertest.Create(c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners, Finalizers: finalizers}})
}

func owner(cm *corev1.ConfigMap, block bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: cm.Name, UID: cm.UID, BlockOwnerDeletion: &block}
}

func del(t *testing.T, c *controllertest.Cluster, name string, policy metav1.DeletionPropagation) {
	t.Helper()
	if err := client.Delete[*corev1.ConfigMap](t.Context(), c.Client, "default", name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
}

func names(c *controllertest.Cluster) []string {
	out := []string{}
	for _, cm := range controllertest.List[*corev1.ConfigMap](c) {
		out = append(out, cm.Name)
	}
	return out
}

func left(c *controllertest.Cluster, want ...string) func() string {
	return func() string {
		if got := names(c); !slices.Equal(got, want) {
			return fmt.Sprintf("there are %v, want %v", got, want)
		}
		return ""
	}
}

func TestDependentsAreDeletedWithTheirOwner(t *testing.T) {
	c := start(t)
	a := configMap(c, "a", nil)
	b := configMap(c, "b", nil, owner(a, false))
	configMap(c, "c", nil, owner(b, false))
	configMap(c, "other", nil)
	del(t, c, "a", metav1.DeletePropagationBackground)
	c.Eventually("the chain is deleted", left(c, "other"))
}

func TestADependentOfAnAbsentOwnerIsDeletedAtOnce(t *testing.T) {
	c := start(t)
	configMap(c, "late", nil, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "no-such-uid"})
	c.Eventually("it is deleted", left(c))
}

func TestAnOwnerOfTheSameNameButAnotherUIDIsNotTheOwner(t *testing.T) {
	c := start(t)
	a := configMap(c, "a", nil)
	ref := owner(a, false)
	ref.UID = "an-earlier-one"
	configMap(c, "b", nil, ref)
	c.Eventually("b is deleted", left(c, "a"))
}

func TestADependentWithAnotherLiveOwnerStaysAndLosesTheReference(t *testing.T) {
	c := start(t)
	a, b := configMap(c, "a", nil), configMap(c, "b", nil)
	configMap(c, "shared", nil, owner(a, false), owner(b, false))
	del(t, c, "a", metav1.DeletePropagationBackground)
	c.Eventually("the reference is removed", func() string {
		s, err := client.Get[*corev1.ConfigMap](t.Context(), c.Client, "default", "shared")
		if err != nil {
			return err.Error()
		}
		if len(s.OwnerReferences) != 1 || s.OwnerReferences[0].Name != "b" {
			return fmt.Sprint(s.OwnerReferences)
		}
		return ""
	})
}

func TestForegroundDeletionWaitsForBlockingDependents(t *testing.T) {
	c := start(t)
	a := configMap(c, "a", nil)
	configMap(c, "b", []string{"example.com/hold"}, owner(a, true))
	del(t, c, "a", metav1.DeletePropagationForeground)
	c.Eventually("b is being deleted", func() string {
		b, err := client.Get[*corev1.ConfigMap](t.Context(), c.Client, "default", "b")
		if err != nil || b.DeletionTimestamp == nil {
			return fmt.Sprint(err)
		}
		return ""
	})
	time.Sleep(50 * time.Millisecond)
	if _, err := client.Get[*corev1.ConfigMap](t.Context(), c.Client, "default", "a"); err != nil {
		t.Fatalf("the owner did not wait: %v", err)
	}
	b, _ := client.Get[*corev1.ConfigMap](t.Context(), c.Client, "default", "b")
	controllertest.Retry(c, b, func(b *corev1.ConfigMap) { b.Finalizers = nil })
	c.Eventually("both are deleted", left(c))
}

func TestForegroundDeletionOfACircleEnds(t *testing.T) {
	c := start(t)
	one := configMap(c, "one", nil)
	two := configMap(c, "two", nil, owner(one, true))
	three := configMap(c, "three", nil, owner(two, true))
	one, _ = client.Get[*corev1.ConfigMap](t.Context(), c.Client, "default", "one")
	one = one.DeepCopy()
	one.OwnerReferences = []metav1.OwnerReference{owner(three, true)}
	if _, err := client.Update(t.Context(), c.Client, one); err != nil {
		t.Fatal(err)
	}
	del(t, c, "one", metav1.DeletePropagationForeground)
	c.Eventually("all are deleted", left(c))
}

func TestOrphanedDependentsStay(t *testing.T) {
	c := start(t)
	a := configMap(c, "a", nil)
	for i := range 20 {
		configMap(c, fmt.Sprintf("b%02d", i), nil, owner(a, true))
	}
	del(t, c, "a", metav1.DeletePropagationOrphan)
	c.Eventually("the owner is deleted", func() string {
		if _, err := client.Get[*corev1.ConfigMap](t.Context(), c.Client, "default", "a"); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	time.Sleep(50 * time.Millisecond)
	if got := names(c); len(got) != 20 {
		t.Errorf("%d of 20 dependents are left", len(got))
	}
	for _, cm := range controllertest.List[*corev1.ConfigMap](c) {
		if len(cm.OwnerReferences) > 0 {
			t.Errorf("%s still names its owner", cm.Name)
		}
	}
}

func TestAnOwnerInAnotherNamespaceIsReported(t *testing.T) {
	c := start(t)
	if _, err := client.Create(t.Context(), c.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}); err != nil {
		t.Fatal(err)
	}
	a := controllertest.Create(c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "elsewhere"}})
	configMap(c, "b", nil, owner(a, false))
	c.Eventually("b is deleted, with an Event", func() string {
		if !slices.ContainsFunc(c.Events.List(), func(e string) bool { return strings.HasPrefix(e, "Warning OwnerRefInvalidNamespace ownerRef") }) {
			return fmt.Sprint(c.Events.List())
		}
		return left(c, "a")()
	})
}
