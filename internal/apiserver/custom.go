package apiserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/custom"
	"github.com/knarr-project/knarr/internal/cache"
)

// customKinds serves the kinds that CustomResourceDefinitions define. It looks a definition up in
// their cache when a request names it: a definition costs nothing until it is used, and is served
// as soon as it is established.
type customKinds struct {
	ctx    context.Context // ends with the server
	engine *engine
	client webhookClient
	// metrics count conversions by webhooks.
	metrics *custom.Metrics
	shared  *shared

	mu     sync.Mutex
	served map[schema.GroupResource]*customKind
}

// customKind is a definition in use: its endpoints and, through them, its cache.
type customKind struct {
	def       *custom.Definition
	revision  int64 // of the definition that def was made from
	endpoints map[string]*endpoint
	converter *converter
}

// customVersion is a version of a custom kind.
type customVersion struct {
	*custom.Version
	// name is the key of the version's objects in cache entries: the version at one state of its
	// definition.
	name     string
	managers *custom.Kept[*customManagers]
}

// definitionsTimeout limits how long a request waits until the definitions are listed, which
// happens once.
const definitionsTimeout = 10 * time.Second

// definitions returns the cache of the CustomResourceDefinitions.
func (c *customKinds) definitions(ctx context.Context) (cache.Reader, error) {
	ctx, cancel := context.WithTimeout(ctx, definitionsTimeout)
	defer cancel()
	r := c.engine.kinds.registry(apiextensionsv1.GroupName, "customresourcedefinitions")
	if r == nil {
		return nil, fmt.Errorf("the table of kinds has no CustomResourceDefinition")
	}
	return r.cache(ctx)
}

// inUse implements kindProvider.
func (c *customKinds) inUse() (list []*endpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range c.served {
		list = slices.AppendSeq(list, maps.Values(kind.endpoints))
	}
	return list
}

// endpoint returns the endpoint of a version of a custom kind.
func (c *customKinds) endpoint(gvr schema.GroupVersionResource) (*endpoint, bool) {
	if gvr.Group == "" {
		return nil, false
	}
	reader, err := c.definitions(c.ctx)
	if err != nil {
		c.shared.log.Error("the custom resource definitions can not be read", "err", err)
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.look(reader, gvr.GroupResource())
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
	e := newCustomEndpoint(c.shared, v)
	k.endpoints[gvr.Version] = e
	return e, true
}

// look returns the kind by its current definition; nil if there is none. mu is held.
func (c *customKinds) look(reader cache.Reader, gr schema.GroupResource) *customKind {
	k := c.served[gr]
	entry, ok := reader.Snapshot().Get(definitionsPrefix + gr.Resource + "." + gr.Group)
	if !ok {
		c.forget(gr)
		return nil
	}
	if k != nil && k.revision == entry.Revision {
		return k
	}
	crd, err := outline(entry)
	if err != nil {
		c.shared.log.Error("a custom resource definition can not be read", "name", gr.String(), "err", err)
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
	if c.engine.kinds.stores(custom.Prefix(crd)) {
		return nil // its objects would be those of a built-in kind
	}
	via := &converter{client: c.client}
	k = &customKind{def: custom.NewDefinition(crd, wholeOf(entry), via.call, c.metrics), revision: entry.Revision, endpoints: map[string]*endpoint{}, converter: via}
	c.served[gr] = k
	return k
}

// outline returns a definition without its schemas. The complete one is not kept in memory.
func outline(entry *cache.Entry) (*apiextensionsv1.CustomResourceDefinition, error) {
	obj, err := entry.Derived("outline", func(obj runtime.Object) (runtime.Object, error) {
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return nil, fmt.Errorf("a %T is no custom resource definition", obj)
		}
		return custom.Outline(crd), nil
	})
	if err != nil {
		return nil, err
	}
	return obj.(*apiextensionsv1.CustomResourceDefinition), nil
}

// wholeOf returns a function that reads a definition with its schemas.
func wholeOf(entry *cache.Entry) func() (*apiextensionsv1.CustomResourceDefinition, error) {
	return func() (*apiextensionsv1.CustomResourceDefinition, error) {
		obj, err := entry.Peek()
		if err != nil {
			return nil, err
		}
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return nil, fmt.Errorf("a %T is no custom resource definition", obj)
		}
		return crd, nil
	}
}

// forget drops a kind whose definition has changed or is gone. Its watches end, and their clients
// list again. mu is held.
func (c *customKinds) forget(gr schema.GroupResource) {
	if k := c.served[gr]; k != nil {
		delete(c.served, gr)
		c.shared.home.cache.Forget(k.def.Prefix())
		k.converter.close()
	}
}

// refresh looks up a changed definition, so that the watches of its previous state end.
func (c *customKinds) refresh(reader cache.Reader, gr schema.GroupResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.served[gr] != nil {
		c.look(reader, gr)
	}
}

// refreshAll looks up every definition in use.
func (c *customKinds) refreshAll(reader cache.Reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for gr := range maps.Clone(c.served) {
		c.look(reader, gr)
	}
}

func newCustomEndpoint(s *shared, v *custom.Version) *endpoint {
	kind := v.Kind()
	r := &registry{
		shared: s, at: s.home, kind: kind, hub: kind.Kind, resource: kind.GroupResource(), strategy: v.Strategy(), codec: customCodec{v},
	}
	r.custom = &customVersion{
		Version: v, name: kind.Kind.Version + "@" + v.Definition().CRD.ResourceVersion,
		managers: custom.NewKept(func() *customManagers { return &customManagers{known: map[string]fieldManager{}} }),
	}
	r.strategy.Columns, r.strategy.Row = v.Columns(), v.Row
	e := newEndpoint(r, kind.Kind.Version)
	e.jsonForm = r.custom.name + "+json"
	return e
}

// customCodec is the stored form of custom resources.
type customCodec struct{ v *custom.Version }

func (c customCodec) encode(obj runtime.Object) ([]byte, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T is no custom resource", obj)
	}
	return c.v.EncodeStored(u)
}

func (c customCodec) decode(data []byte, revision int64) (runtime.Object, error) {
	obj, err := custom.DecodeStored(data, revision)
	if err != nil {
		return nil, err
	}
	return c.v.FromStored(obj)
}

// customSchema tells the cache to keep custom resources as stored, for all versions. Selectors by
// fields other than names are evaluated in the version of the request.
func (r *registry) customSchema() cache.Schema {
	decode := func(stored []byte, revision int64) (runtime.Object, error) {
		obj, err := custom.DecodeStored(stored, revision)
		r.shared.store.decoded(r.resource, err)
		return obj, err
	}
	return cache.Schema{Prefix: r.kind.Prefix, Decode: decode, Header: func(obj runtime.Object) cache.Header {
		meta := accessor(obj)
		return cache.Header{Namespace: meta.GetNamespace(), Name: meta.GetName(), UID: string(meta.GetUID()), Labels: cache.PairsOf(meta.GetLabels())}
	}}
}

// followDefinitions follows CustomResourceDefinitions until ctx ends.
func (c *customKinds) followDefinitions(ctx context.Context, changed func(name string)) {
	for ctx.Err() == nil {
		if err := c.follow(ctx, changed); err != nil && ctx.Err() == nil {
			c.shared.log.Debug("the custom resource definitions are followed again", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func (c *customKinds) follow(ctx context.Context, changed func(name string)) error {
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
