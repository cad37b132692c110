package gc_test

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/gc"
)

// slow is a client whose lists of Secrets are answered by a function.
type slow struct {
	client.Interface
	list func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
}

func (s *slow) List(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
	if res == secrets {
		return s.list(ctx, opts)
	}
	return s.Interface.List(ctx, res, namespace, opts)
}

// withSlow runs a collector that cannot watch Secrets until release is called. The function list
// answers its lists of Secrets.
func withSlow(t *testing.T, limit, total time.Duration, list func(s *slow, ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)) (c *controllertest.Cluster, release func()) {
	c = controllertest.New(t)
	s := &slow{Interface: c.Client}
	s.list = func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return list(s, ctx, opts) }
	c.Client = s
	release = c.Withhold(secrets)
	c.Run(gc.Impatient(limit, total))
	return c, release
}

func TestForegroundDeletionDoesNotWaitForAHangingList(t *testing.T) {
	c, release := withSlow(t, time.Millisecond, time.Hour, func(_ *slow, ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	defer release()
	configMap(c, "foreground", nil)
	del(t, c, "foreground", metav1.DeletePropagationForeground)
	c.Eventually("the owner is deleted", left(c))
}

func TestForegroundDeletionDoesNotWaitForAnEndlessList(t *testing.T) {
	for name, tc := range map[string]struct {
		total time.Duration
		next  func(opts metav1.ListOptions) string
	}{
		"the page that was just given":          {time.Hour, func(metav1.ListOptions) string { return "again" }},
		"new pages, for longer than any kind's": {time.Millisecond, func(opts metav1.ListOptions) string { return opts.Continue + "x" }},
	} {
		t.Run(name, func(t *testing.T) {
			c, release := withSlow(t, time.Minute, tc.total, func(_ *slow, ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return &corev1.SecretList{ListMeta: metav1.ListMeta{Continue: tc.next(opts)}}, ctx.Err()
			})
			defer release()
			configMap(c, "foreground", nil)
			del(t, c, "foreground", metav1.DeletePropagationForeground)
			c.Eventually("the owner is deleted", left(c))
		})
	}
}

// ahead is a client whose Secrets are in another store. Their Views claim to have reached every
// revision, and show nothing.
type ahead struct {
	client.Interface
	extension bool
}

type aheadView struct{ client.View }

func (aheadView) WaitFor(context.Context, int64) error { return nil }

func (aheadView) ByIndex(string, string) []runtime.Object { return nil }

type elsewhere struct{ client.View }

func (v elsewhere) Get(namespace, name string) (runtime.Object, bool) {
	if name == "v1." {
		return &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Name: "elsewhere"}}}, true
	}
	return v.View.Get(namespace, name)
}

func (a ahead) View(ctx context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	view, err := a.Interface.View(ctx, res, scope)
	switch {
	case err != nil:
	case res == secrets:
		view = aheadView{view}
	case res.Resource == "apiservices" && a.extension:
		view = elsewhere{view}
	}
	return view, err
}

func TestRevisionsOfDifferentStoresAreNotCompared(t *testing.T) {
	for name, tc := range map[string]struct {
		extension bool
		elsewhere string
	}{
		"dependents of an extension server":    {extension: true},
		"dependents with a store of their own": {elsewhere: "secrets"},
		"owners with a store of their own":     {elsewhere: "configmaps"},
	} {
		t.Run(name, func(t *testing.T) {
			c := controllertest.New(t)
			c.Client = ahead{c.Client, tc.extension}
			c.Config.Elsewhere = func(kind schema.GroupResource) bool { return kind.Resource == tc.elsewhere }
			a := configMap(c, "orphaning", nil)
			controllertest.Create(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "dependent", OwnerReferences: []metav1.OwnerReference{owner(a, false)}}})
			c.Run(gc.Controller)
			del(t, c, "orphaning", metav1.DeletePropagationOrphan)
			c.Eventually("the owner is deleted", left(c))
			s, err := client.Get[*corev1.Secret](t.Context(), c.Client, "default", "dependent")
			if err != nil || len(s.OwnerReferences) > 0 {
				t.Errorf("the dependent is %+v: %v", s, err)
			}
		})
	}
}

func TestOrphaningWaitsForAKindThatCannotBeListed(t *testing.T) {
	var mu sync.Mutex
	refused := 0
	c, release := withSlow(t, time.Minute, time.Hour, func(*slow, context.Context, metav1.ListOptions) (runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		refused++
		return nil, apierrors.NewServiceUnavailable("their server is away")
	})
	a := configMap(c, "orphaning", nil)
	controllertest.Create(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "dependent", OwnerReferences: []metav1.OwnerReference{owner(a, false)}}})
	del(t, c, "orphaning", metav1.DeletePropagationOrphan)
	c.Eventually("it waits", func() string {
		mu.Lock()
		defer mu.Unlock()
		if refused < 2 {
			return "it was not tried again"
		}
		return ""
	})
	release()
	c.Eventually("the owner is deleted", left(c))
	s, err := client.Get[*corev1.Secret](t.Context(), c.Client, "default", "dependent")
	if err != nil || len(s.OwnerReferences) > 0 {
		t.Errorf("the dependent is %+v: %v", s, err)
	}
}

// A kind with many pages may take longer than the limit of one page.
func TestTheTimeLimitAppliesToEachPage(t *testing.T) {
	var mu sync.Mutex
	var until []time.Time
	c, release := withSlow(t, time.Minute, time.Hour, func(s *slow, ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		deadline, _ := ctx.Deadline()
		mu.Lock()
		until = append(until, deadline)
		mu.Unlock()
		opts.Limit = 1
		return s.Interface.List(ctx, secrets, "default", opts)
	})
	defer release()
	for _, name := range []string{"one", "two", "three"} {
		controllertest.Create(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	configMap(c, "orphaning", nil)
	del(t, c, "orphaning", metav1.DeletePropagationOrphan)
	c.Eventually("the owner is deleted", left(c))
	mu.Lock()
	defer mu.Unlock()
	if len(until) < 3 || !until[1].After(until[0]) || !until[2].After(until[1]) {
		t.Errorf("the pages were to come until %v", until)
	}
}
