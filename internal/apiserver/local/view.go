package local

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/client"
)

// View shows the cache's own objects. The user is authorized to list and watch the scope once, when
// the view is opened.
func (c *localClient) View(ctx context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	op, err := c.selecting(ctx, "list", res, scope.Namespace, scope.FieldSelector, scope.LabelSelector)
	if err != nil {
		return nil, err
	}
	if _, err := c.selecting(ctx, "watch", res, scope.Namespace, scope.FieldSelector, scope.LabelSelector); err != nil {
		return nil, err
	}
	e := op.Endpoint
	source := client.LocalSource{
		Kind: func(ctx context.Context) (*cache.Kind, error) {
			// Look it up again: a custom kind may have a new definition.
			e, ok := c.from.Engine.Kinds.Find(res)
			if !ok {
				return nil, apierrors.NewNotFound(res.GroupResource(), "")
			}
			reader, err := e.Cache(ctx)
			if err != nil {
				return nil, err
			}
			kind, ok := reader.(*cache.Kind)
			if !ok {
				return nil, fmt.Errorf("the cache of %s is a %T, which has no views", e.Resource, reader)
			}
			return kind, nil
		},
		Prefix: e.Kind.Prefix, Namespaced: e.Kind.Namespaced,
	}
	if e.Custom != nil {
		// Use the current definition: when it changes, so does the cache.
		source.Version = "view of " + e.GVK.Version
		source.Convert = func(obj runtime.Object) (runtime.Object, error) {
			e, ok := c.from.Engine.Kinds.Find(res)
			if !ok || e.Custom == nil {
				return nil, apierrors.NewNotFound(res.GroupResource(), "")
			}
			return e.Custom.FromStored(obj)
		}
	} else if e.GVK != e.Hub {
		source.Version = e.GVK.GroupVersion().String()
		source.Convert = func(obj runtime.Object) (runtime.Object, error) { return e.FromHub(obj) }
	}
	view, err := c.views.Get(ctx, res, scope, func(ctx context.Context) (client.View, error) {
		return client.NewLocalView(ctx, source, scope)
	})
	if err != nil {
		return nil, fmt.Errorf("view of %s: %w", res, err)
	}
	return view, nil
}
