package gc_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/gc"
)

// As upstream's collector, ours starts with the kinds that it can list and adds the others later.
func TestAnUnlistableKindDoesNotStopTheCollectionOfOtherKinds(t *testing.T) {
	c := controllertest.New(t)
	release := c.Withhold(secrets)
	c.Run(gc.Impatient(time.Minute, time.Hour))
	a := configMap(c, "a", nil)
	b := configMap(c, "b", nil, owner(a, true))
	configMap(c, "c", nil, owner(b, true))
	gone := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "gone", UID: "no-such-uid"}
	configMap(c, "of-the-unseen", nil, gone)
	controllertest.Create(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "unseen", OwnerReferences: []metav1.OwnerReference{gone}}})
	c.Eventually("dependents of absent owners are deleted, even of owners of the unlistable kind", left(c, "a", "b", "c"))
	del(t, c, "b", metav1.DeletePropagationForeground)
	c.Eventually("foreground deletion works", left(c, "a"))
	del(t, c, "a", metav1.DeletePropagationBackground)
	c.Eventually("nothing is left", left(c))

	if _, err := client.Get[*corev1.Secret](t.Context(), c.Client, "default", "unseen"); err != nil {
		t.Fatal(err)
	}
	release()
	c.Eventually("the kind is collected once it can be listed", func() string {
		if _, err := client.Get[*corev1.Secret](t.Context(), c.Client, "default", "unseen"); !apierrors.IsNotFound(err) {
			return "the Secret is still there"
		}
		return ""
	})
}
