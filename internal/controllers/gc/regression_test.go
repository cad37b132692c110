package gc_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/gc"
)

// Tests for faults of other garbage collectors with stale knowledge of owners (k/k#88097, #65200).
// Run them with go test -run Regression.

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// stale is a client whose Views of Secrets, the owners in these tests, are late. All other answers
// are fresh.
type stale struct {
	client.Interface
	behind client.Interface

	mu       sync.Mutex         // guards the fields below
	found    map[types.UID]bool // UIDs of the Secrets that Get returned
	listed   int                // number of lists of Secrets
	away     bool               // lists of Secrets fail
	deleting func(name string)
}

func (s *stale) View(ctx context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	if res == secrets {
		return s.behind.View(ctx, res, scope)
	}
	return s.Interface.View(ctx, res, scope)
}

// Get records the owners that it finds.
func (s *stale) Get(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.GetOptions, sub ...string) (runtime.Object, error) {
	obj, err := s.Interface.Get(ctx, res, namespace, name, opts, sub...)
	if res == secrets && err == nil {
		s.mu.Lock()
		s.found[obj.(*corev1.Secret).UID] = true
		s.mu.Unlock()
	}
	return obj, err
}

// List counts the lists of Secrets.
func (s *stale) List(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
	if res == secrets {
		s.mu.Lock()
		s.listed++
		away := s.away
		s.mu.Unlock()
		if away {
			return nil, apierrors.NewServiceUnavailable("their server is away")
		}
	}
	return s.Interface.List(ctx, res, namespace, opts)
}

func (s *stale) Delete(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	s.mu.Lock()
	fn := s.deleting
	s.mu.Unlock()
	if fn != nil {
		fn(name)
	}
	return s.Interface.Delete(ctx, res, namespace, name, opts)
}

// lookedUp checks that Get has returned this very owner, not another one of the same name.
func (s *stale) lookedUp(ref metav1.OwnerReference) func() string {
	return func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.found[ref.UID] {
			return fmt.Sprintf("%s with UID %s was not looked up", ref.Name, ref.UID)
		}
		return ""
	}
}

// shown checks that the client's Views contain the owner.
func (s *stale) shown(t *testing.T, ref metav1.OwnerReference) func() string {
	t.Helper()
	v, err := client.Open[*corev1.Secret](t.Context(), s, client.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	return func() string {
		if o, ok := v.Get("default", ref.Name); !ok || o.UID != ref.UID {
			return ref.Name + " is not in the View"
		}
		return ""
	}
}

// startStale runs a collector that sees owners late. hold stops the owners' events, and pass lets
// them through again.
func startStale(t *testing.T) (c *controllertest.Cluster, s *stale, hold func() (pass func())) {
	c = controllertest.New(t)
	behind, hold := c.Behind()
	s = &stale{Interface: c.Client, behind: behind, found: map[types.UID]bool{}}
	c.Client = s
	c.Run(gc.Controller)
	configMap(c, "first", nil, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "no-such-uid"})
	c.Eventually("the collector works", left(c))
	return c, s, hold
}

func ownerSecret(c *controllertest.Cluster, name string) metav1.OwnerReference {
	s := controllertest.Create(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: s.Name, UID: s.UID}
}

func removeSecret(t *testing.T, c *controllertest.Cluster, name string) {
	t.Helper()
	if err := client.Delete[*corev1.Secret](t.Context(), c.Client, "default", name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestRegressionAnOwnerMissingInTheCacheIsLookedUp(t *testing.T) {
	c, s, hold := startStale(t)
	pass := hold()
	defer pass()
	ref := ownerSecret(c, "unseen")
	configMap(c, "dependent", nil, ref)
	c.Eventually("the owner is looked up", s.lookedUp(ref))
	configMap(c, "sentinel", nil, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "never", UID: "no-such-uid"})
	c.Eventually("only the object without an owner is deleted", left(c, "dependent"))
	pass()
	removeSecret(t, c, "unseen")
	c.Eventually("it is deleted with its owner", left(c))
}

func TestRegressionARecreatedOwnerIsAnotherOwner(t *testing.T) {
	c, s, hold := startStale(t)
	old := ownerSecret(c, "owner")
	configMap(c, "of-the-old", nil, old)
	c.Eventually("the collector knows the old owner", s.shown(t, old))
	pass := hold()
	defer pass()
	removeSecret(t, c, "owner")
	made := ownerSecret(c, "owner")
	configMap(c, "of-the-new", nil, made)
	c.Eventually("the new owner is looked up", s.lookedUp(made))
	configMap(c, "sentinel", nil, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "never", UID: "no-such-uid"})
	c.Eventually("both dependents exist while the collector has not seen the deletion", left(c, "of-the-new", "of-the-old"))
	pass()
	c.Eventually("the old owner's dependent is deleted, the new one's stays", left(c, "of-the-new"))
}

// adopt replaces the owners of a ConfigMap when the collector is about to delete it.
func (s *stale) adopt(t *testing.T, adopted string, by metav1.OwnerReference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleting = func(name string) {
		if name != adopted {
			return
		}
		s.mu.Lock()
		s.deleting = nil
		s.mu.Unlock()
		m, err := client.Get[*corev1.ConfigMap](t.Context(), s, "default", name)
		if err == nil {
			m = m.DeepCopy()
			m.OwnerReferences = []metav1.OwnerReference{by}
			_, err = client.Update(t.Context(), s, m)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// adopted checks that the ConfigMap exists and has the owner.
func adopted(t *testing.T, c *controllertest.Cluster, name string, by metav1.OwnerReference) func() string {
	return func() string {
		m, err := client.Get[*corev1.ConfigMap](t.Context(), c.Client, "default", name)
		if apierrors.IsNotFound(err) {
			t.Fatal("it was deleted though it has an owner")
		}
		if err != nil || m.OwnerReferences[0].UID != by.UID {
			return fmt.Sprint(err, m)
		}
		return ""
	}
}

func TestRegressionADependentAdoptedBeforeItsDeletionStays(t *testing.T) {
	c, s, _ := startStale(t)
	found := ownerSecret(c, "found")
	s.adopt(t, "adopted", found)
	configMap(c, "adopted", nil, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "never", UID: "no-such-uid"})
	c.Eventually("the collector tried to delete it", adopted(t, c, "adopted", found))
	configMap(c, "sentinel", nil, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "never", UID: "no-such-uid"})
	c.Eventually("it stays", left(c, "adopted"))
}

func TestRegressionADependentAdoptedBeforeItsForegroundDeletionStays(t *testing.T) {
	c, s, _ := startStale(t)
	found := ownerSecret(c, "found")
	top := configMap(c, "top", nil)
	middle := configMap(c, "adopted", nil, owner(top, true))
	// Without a blocking dependent, there would be nothing to wait for.
	configMap(c, "below", nil, owner(middle, true))
	c.Eventually("all are there", left(c, "adopted", "below", "top"))
	s.adopt(t, "adopted", found)
	del(t, c, "top", metav1.DeletePropagationForeground)
	c.Eventually("the collector tried to delete it", adopted(t, c, "adopted", found))
	c.Eventually("it stays", left(c, "adopted", "below"))
}

func TestRegressionADependentMissingInTheCacheIsOrphaned(t *testing.T) {
	c, _, hold := startStale(t)
	a := configMap(c, "owner", nil)
	pass := hold()
	defer pass()
	controllertest.Create(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "unseen", OwnerReferences: []metav1.OwnerReference{owner(a, true)}}})
	del(t, c, "owner", metav1.DeletePropagationOrphan)
	c.Eventually("the owner is deleted", left(c))
	pass()
	c.Eventually("its dependent stays without an owner", func() string {
		m, err := client.Get[*corev1.Secret](t.Context(), c.Client, "default", "unseen")
		if err != nil {
			t.Fatal(err)
		}
		if len(m.OwnerReferences) > 0 {
			return "it has an owner"
		}
		return ""
	})
	configMap(c, "sentinel", nil, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "never", UID: "no-such-uid"})
	c.Eventually("the collector has had time for more", left(c))
	if _, err := client.Get[*corev1.Secret](t.Context(), c.Client, "default", "unseen"); err != nil {
		t.Error(err)
	}
}

func TestRegressionAnOwnerWaitsForADependentMissingInTheCache(t *testing.T) {
	c, s, hold := startStale(t)
	a := configMap(c, "owner", nil)
	pass := hold()
	defer pass()
	controllertest.Create(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: "unseen", OwnerReferences: []metav1.OwnerReference{owner(a, true)}, Finalizers: []string{"example.com/hold"},
	}})
	del(t, c, "owner", metav1.DeletePropagationForeground)
	c.Eventually("the server is queried", func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.listed == 0 {
			return "Secrets were not listed"
		}
		return ""
	})
	configMap(c, "sentinel", nil, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "never", UID: "no-such-uid"})
	c.Eventually("the owner waits", left(c, "owner"))
	pass()
	c.Eventually("the dependent is being deleted once it is seen", func() string {
		m, err := client.Get[*corev1.Secret](t.Context(), c.Client, "default", "unseen")
		if err != nil {
			t.Fatal(err)
		}
		if m.DeletionTimestamp == nil {
			return "it is not"
		}
		m = m.DeepCopy()
		m.Finalizers = nil
		if _, err := client.Update(t.Context(), c.Client, m); err != nil {
			return err.Error()
		}
		return ""
	})
	c.Eventually("the owner is deleted after it", left(c))
}

func TestAnUnlistableKindDoesNotDelayForegroundDeletion(t *testing.T) {
	c, s, hold := startStale(t)
	configMap(c, "foreground", nil)
	s.mu.Lock()
	s.away = true
	s.mu.Unlock()
	pass := hold()
	defer pass()
	del(t, c, "foreground", metav1.DeletePropagationForeground)
	c.Eventually("the owner is deleted", left(c))
}
