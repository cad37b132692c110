package definitions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/custom"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/cache"
)

// Kinds serves the kinds that CustomResourceDefinitions define. It looks a definition up in
// their cache when a request names it: a definition costs nothing until it is used, and is served
// as soon as it is established.
type Kinds struct {
	Ctx    context.Context // ends with the server
	Engine *verb.Engine
	Client webhookClient
	// Metrics count conversions by webhooks.
	Metrics *custom.Metrics
	Shared  *registry.Shared
	// First reports whether this server accepts names and removes objects at once. The other
	// servers of the store leave that to it for secondAfter. Two servers at a time could accept the
	// same name for two definitions.
	First func() bool

	mu     sync.Mutex
	Served map[schema.GroupResource]*CustomKind
}

// CustomKind is a definition in use: its endpoints and, through them, its cache.
type CustomKind struct {
	def       *custom.Definition
	revision  int64 // of the definition that def was made from
	endpoints map[string]*registry.Endpoint
	converter *Converter
}

// definitionsTimeout limits how long a request waits until the definitions are listed, which
// happens once.
const definitionsTimeout = 10 * time.Second

// definitions returns the cache of the CustomResourceDefinitions.
func (c *Kinds) definitions(ctx context.Context) (cache.Reader, error) {
	ctx, cancel := context.WithTimeout(ctx, definitionsTimeout)
	defer cancel()
	r := c.Engine.Kinds.Registry(apiextensionsv1.GroupName, "customresourcedefinitions")
	if r == nil {
		return nil, fmt.Errorf("the table of kinds has no CustomResourceDefinition")
	}
	return r.Cache(ctx)
}

// InUse implements kindProvider.
func (c *Kinds) InUse() (list []*registry.Endpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range c.Served {
		list = slices.AppendSeq(list, maps.Values(kind.endpoints))
	}
	return list
}

// Endpoint returns the endpoint of a version of a custom kind.
func (c *Kinds) Endpoint(gvr schema.GroupVersionResource) (*registry.Endpoint, bool) {
	if gvr.Group == "" {
		return nil, false
	}
	reader, err := c.definitions(c.Ctx)
	if err != nil {
		c.Shared.Log.Error("the custom resource definitions cannot be read", "err", err)
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.lookUp(reader, gvr.GroupResource())
	if k == nil {
		return nil, false
	}
	if e, ok := k.endpoints[gvr.Version]; ok {
		return e, true
	}
	v, ok := k.def.Version(gvr.Version)
	if !ok {
		return nil, false
	}
	e := registry.NewCustomEndpoint(c.Shared, v)
	k.endpoints[gvr.Version] = e
	return e, true
}

// lookUp returns the kind by its current definition; nil if there is none. mu is held.
func (c *Kinds) lookUp(reader cache.Reader, gr schema.GroupResource) *CustomKind {
	k := c.Served[gr]
	entry, ok := reader.Snapshot().Get(definitionsPrefix + gr.Resource + "." + gr.Group)
	if !ok {
		c.forget(gr)
		return nil
	}
	if k != nil && k.revision == entry.Revision {
		return k
	}
	crd, err := registry.DefinitionOutline(entry)
	if err != nil {
		c.Shared.Log.Error("a custom resource definition cannot be read", "name", gr.String(), "err", err)
		c.forget(gr)
		return nil
	}
	if crd.Spec.Group != gr.Group || crd.Spec.Names.Plural != gr.Resource {
		c.forget(gr)
		return nil
	}
	if k != nil && k.def.Serves(crd) {
		k.def.Follow(crd)
		k.revision = entry.Revision
		return k
	}
	c.forget(gr)
	if c.Engine.Kinds.HasBuiltInPrefix(custom.Prefix(crd)) {
		return nil // its objects would be those of a built-in kind
	}
	via := &Converter{Client: c.Client}
	k = &CustomKind{def: custom.NewDefinition(crd, registry.ReadDefinition(entry), via.Call, c.Metrics), revision: entry.Revision, endpoints: map[string]*registry.Endpoint{}, converter: via}
	c.Served[gr] = k
	return k
}

// forget drops a kind whose definition has changed or is gone. Its watches end, and their clients
// list again. mu is held.
func (c *Kinds) forget(gr schema.GroupResource) {
	if k := c.Served[gr]; k != nil {
		delete(c.Served, gr)
		c.Shared.Home.Cache.Forget(k.def.Prefix())
		k.converter.Close()
	}
}

// refresh looks up a changed definition, so that the watches of its previous state end.
func (c *Kinds) refresh(reader cache.Reader, gr schema.GroupResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Served[gr] != nil {
		c.lookUp(reader, gr)
	}
}

// refreshAll looks up every definition in use.
func (c *Kinds) refreshAll(reader cache.Reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for gr := range maps.Clone(c.Served) {
		c.lookUp(reader, gr)
	}
}

// followDefinitions follows CustomResourceDefinitions until ctx ends.
func (c *Kinds) followDefinitions(ctx context.Context, changed func(name string)) {
	for ctx.Err() == nil {
		if err := c.follow(ctx, changed); err != nil && ctx.Err() == nil {
			c.Shared.Log.Debug("the watch of custom resource definitions is restarted", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func (c *Kinds) follow(ctx context.Context, changed func(name string)) error {
	reader, err := c.definitions(ctx)
	if err != nil {
		return err
	}
	kind, ok := reader.(*cache.Kind)
	if !ok {
		return fmt.Errorf("the cache of definitions is a %T", reader)
	}
	s := reader.Snapshot()
	cursor, err := kind.WatchLight(s.Revision(), cache.Interest{})
	if err != nil {
		return err
	}
	defer cursor.Close()
	c.refreshAll(reader) // changes from before the watch
	s.Ascend("", "", func(e *cache.Entry) bool { changed(e.Name); return true })
	for {
		changes, _, err := cursor.Next(ctx)
		if err != nil {
			return err
		}
		for _, change := range changes {
			changed(change.Entry.Name)
			if resource, group, ok := custom.SplitName(change.Entry.Name); ok {
				c.refresh(reader, schema.GroupResource{Group: group, Resource: resource})
			}
		}
	}
}
