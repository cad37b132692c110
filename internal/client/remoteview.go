package client

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/knarr-project/knarr/internal/cache"
)

// View follows a kind by a list and a watch, and keeps the picture in this process. Views of the
// same scope share it. View waits until the server allows the list, or ctx ends.
func (r *remote) View(ctx context.Context, res schema.GroupVersionResource, scope Scope) (View, error) {
	if _, err := scope.interest(); err != nil {
		return nil, err
	}
	view, err := r.views.Get(ctx, res, scope, func(ctx context.Context) (View, error) { return r.viewer.open(ctx, res, scope) })
	if err != nil {
		return nil, fmt.Errorf("view of %s: %w", res, err)
	}
	return view, nil
}

func (r *remote) open(ctx context.Context, res schema.GroupVersionResource, scope Scope) (View, error) {
	lw, err := r.listerWatcher(res, scope)
	if err != nil {
		return nil, err
	}
	in := &intake{feed: cache.NewFeed(), synced: make(chan struct{})}
	reflector := toolscache.NewReflectorWithOptions(lw, nil, in, toolscache.ReflectorOptions{
		Name: "view of " + res.String(), TypeDescription: res.Resource,
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 9, Cap: 30 * time.Second},
	})
	go func() {
		reflector.RunWithContext(ctx)
		in.feed.Close()
	}()
	select {
	case <-in.synced:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// The server filters: all objects in the feed are in the scope.
	v := &view{
		source: LocalSource{Kind: func(context.Context) (*cache.Kind, error) { return in.feed.Kind, nil }, Namespaced: true},
		object: (*cache.Entry).Object, id: newViewID(), light: scope.MetadataOnly,
	}
	v.kind.Store(in.feed.Kind)
	return v, nil
}

func (r *remote) listerWatcher(res schema.GroupVersionResource, scope Scope) (toolscache.ListerWatcher, error) {
	scoped := func(opts metav1.ListOptions) metav1.ListOptions {
		opts.LabelSelector, opts.FieldSelector = scope.LabelSelector, scope.FieldSelector
		return opts
	}
	if scope.MetadataOnly {
		c := r.metadata.Resource(res).Namespace(scope.Namespace)
		return &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return c.List(ctx, scoped(opts))
			},
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				return c.Watch(ctx, scoped(opts))
			},
		}, nil
	}
	c, typed, err := r.rest(res)
	if err != nil {
		return nil, err
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return r.List(ctx, res, scope.Namespace, scoped(opts))
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts = scoped(opts)
			opts.Watch = true
			if !typed {
				return r.in(res, scope.Namespace).Watch(ctx, opts)
			}
			return path(c.Get(), res, scope.Namespace, "", nil).SpecificallyVersionedParams(&opts, metav1.ParameterCodec, version).Watch(ctx)
		},
	}, nil
}

// intake passes the reflector's objects on to the feed of a view.
type intake struct {
	feed   *cache.Feed
	once   sync.Once
	synced chan struct{} // closed after the first list
}

var _ toolscache.ReflectorStore = (*intake)(nil)

func (in *intake) Add(obj any) error    { return in.put(obj) }
func (in *intake) Update(obj any) error { return in.put(obj) }
func (in *intake) Resync() error        { return nil }

func (in *intake) put(obj any) error {
	o, err := fed(obj)
	if err != nil {
		return err
	}
	in.feed.Put(o)
	return nil
}

func (in *intake) Delete(obj any) error {
	o, err := fed(obj)
	if err != nil {
		return err
	}
	in.feed.Delete(o.Key, o.Revision)
	return nil
}

// Replace takes a list: the first one, or one after missed events.
func (in *intake) Replace(list []any, resourceVersion string) error {
	objs := make([]cache.FedObject, 0, len(list))
	for _, item := range list {
		o, err := fed(item)
		if err != nil {
			return err
		}
		objs = append(objs, o)
	}
	in.feed.Replace(objs, revisionOf(resourceVersion))
	in.once.Do(func() { close(in.synced) })
	return nil
}

// UpdateResourceVersion takes the position of the watch, after each event and bookmark.
func (in *intake) UpdateResourceVersion(resourceVersion string) {
	in.feed.Reach(revisionOf(resourceVersion))
}

func fed(item any) (cache.FedObject, error) {
	obj, ok := item.(runtime.Object)
	if !ok {
		return cache.FedObject{}, fmt.Errorf("a watch returned a %T, which is not an API object", item)
	}
	acc, err := meta.Accessor(obj)
	if err != nil {
		return cache.FedObject{}, err
	}
	return cache.FedObject{
		Key: keyOf(acc.GetNamespace(), acc.GetName()), Revision: revisionOf(acc.GetResourceVersion()), Object: obj,
		Header: cache.Header{Namespace: acc.GetNamespace(), Name: acc.GetName(), UID: string(acc.GetUID()), Labels: cache.PairsOf(acc.GetLabels())},
	}, nil
}

func keyOf(namespace, name string) string {
	if namespace == "" {
		return "/" + name
	}
	return "/" + namespace + "/" + name
}

// revisionOf parses a resourceVersion. All conforming servers use numbers (KEP-5504).
func revisionOf(resourceVersion string) int64 {
	n, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil && resourceVersion != "" {
		slog.Error("a resourceVersion is not a number", "component", "client", "resourceVersion", resourceVersion)
	}
	return n
}
