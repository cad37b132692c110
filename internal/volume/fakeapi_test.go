package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
)

// cluster implements the part of the API that volumes use.
type cluster struct {
	client.Interface // unimplemented methods panic
	mu               sync.Mutex
	objects          map[string]runtime.Object // resource/namespace/name
	views            []*view
	tokens           int
	patched          []string
	life             time.Duration
	fixed            atomic.Pointer[time.Time] // see now
}

func newCluster() *cluster {
	return &cluster{objects: map[string]runtime.Object{}, life: time.Hour}
}

// now returns the time given to setNow, or the machine's time.
func (c *cluster) now() time.Time {
	if fixed := c.fixed.Load(); fixed != nil {
		return *fixed
	}
	return time.Now()
}

func (c *cluster) setNow(now time.Time) { c.fixed.Store(&now) }

func (c *cluster) Get(_ context.Context, res schema.GroupVersionResource, namespace, name string, _ metav1.GetOptions, _ ...string) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if object, found := c.objects[res.Resource+"/"+namespace+"/"+name]; found {
		return object, nil
	}
	return nil, apierrors.NewNotFound(res.GroupResource(), name)
}

func (c *cluster) CreateSub(_ context.Context, _ schema.GroupVersionResource, _, name, _ string, obj runtime.Object, _ metav1.CreateOptions) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens < 0 {
		return nil, errors.New("no tokens today")
	}
	c.tokens++
	request := obj.(*authenticationv1.TokenRequest).DeepCopy()
	request.Status = authenticationv1.TokenRequestStatus{Token: fmt.Sprintf("%s-%d", name, c.tokens), ExpirationTimestamp: metav1.NewTime(c.now().Add(c.life))}
	return request, nil
}

// put stores an object and notifies the Views. A nil object deletes.
func (c *cluster) put(resource, name string, object runtime.Object) {
	c.mu.Lock()
	key := resource + "/default/" + name
	if object == nil {
		delete(c.objects, key)
	} else {
		c.objects[key] = object
	}
	views := slices.Clone(c.views)
	c.mu.Unlock()
	for _, v := range views {
		if v.key == key {
			v.changed <- struct{}{}
		}
	}
}

func (c *cluster) View(_ context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := strings.TrimPrefix(scope.FieldSelector, "metadata.name=")
	v := &view{cluster: c, key: res.Resource + "/" + scope.Namespace + "/" + name, changed: make(chan struct{}, 10)}
	c.views = append(c.views, v)
	return v, nil
}

type view struct {
	cluster *cluster
	key     string
	changed chan struct{}
}

func (v *view) Get(_, _ string) (runtime.Object, bool) {
	v.cluster.mu.Lock()
	defer v.cluster.mu.Unlock()
	object, found := v.cluster.objects[v.key]
	return object, found
}

func (v *view) List(string, labels.Selector) []runtime.Object { return nil }

func (v *view) AddIndex(string, func(runtime.Object) []string) {}

func (v *view) ByIndex(string, string) []runtime.Object { return nil }

func (v *view) Revision() int64 { return 0 }

func (v *view) WaitFor(context.Context, int64) error { return nil }

func (v *view) Subscribe(ctx context.Context, fn func(client.Event)) (synced, done <-chan struct{}) {
	ended, ready := make(chan struct{}), make(chan struct{})
	close(ready)
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-v.changed:
				fn(client.Event{Type: client.Modified})
			}
		}
	}()
	return ready, ended
}
