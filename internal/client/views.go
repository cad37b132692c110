package client

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/cache"
)

// indexFuncs are the index functions of a view, by name.
type indexFuncs struct {
	mu  sync.Mutex
	fns map[string]func(*cache.Entry) []string
}

// add returns false if the name is in use.
func (x *indexFuncs) add(name string, of func(*cache.Entry) []string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.fns[name]; ok {
		return false
	}
	if x.fns == nil {
		x.fns = map[string]func(*cache.Entry) []string{}
	}
	x.fns[name] = of
	return true
}

func (x *indexFuncs) get(name string) (of func(*cache.Entry) []string, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	of, ok = x.fns[name]
	return of, ok
}

func (x *indexFuncs) each(fn func(string, func(*cache.Entry) []string)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, of := range x.fns {
		fn(name, of)
	}
}

// Views are the open Views of one Interface, shared by kind and scope.
type Views struct {
	mu   sync.Mutex
	open map[viewKey]*sharedView
}

type viewKey struct {
	res   schema.GroupVersionResource
	scope Scope
}

type sharedView struct {
	ready chan struct{} // closed when view or err is set
	view  View
	err   error
	users int
	end   context.CancelFunc // ends the context of the view
}

// Get returns the open View of a kind and scope, or opens it with open. The context of open ends
// when the contexts of all callers have ended. Get returns when the View is complete, or with ctx's
// error.
func (vs *Views) Get(ctx context.Context, res schema.GroupVersionResource, scope Scope, open func(ctx context.Context) (View, error)) (View, error) {
	key := viewKey{res, scope}
	vs.mu.Lock()
	s := vs.open[key]
	if s == nil {
		life, end := context.WithCancel(context.WithoutCancel(ctx))
		s = &sharedView{ready: make(chan struct{}), end: end}
		if vs.open == nil {
			vs.open = map[viewKey]*sharedView{}
		}
		vs.open[key] = s
		go func() {
			s.view, s.err = open(life)
			close(s.ready)
		}()
	}
	s.users++
	vs.mu.Unlock()
	leave := func() {
		vs.mu.Lock()
		defer vs.mu.Unlock()
		if s.users--; s.users == 0 {
			s.end()
			if vs.open[key] == s {
				delete(vs.open, key)
			}
		}
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
	if s.err != nil {
		leave()
		return nil, s.err
	}
	context.AfterFunc(ctx, leave)
	return s.view, nil
}

// each calls fn with the complete Views of a resource, in any version.
func (vs *Views) each(gr schema.GroupResource, fn func(Scope, View)) {
	vs.mu.Lock()
	open := maps.Clone(vs.open)
	vs.mu.Unlock()
	for _, key := range slices.Collect(maps.Keys(open)) {
		if key.res.GroupResource() != gr {
			continue
		}
		select {
		case <-open[key].ready:
			if open[key].err == nil {
				fn(key.scope, open[key].view)
			}
		default:
		}
	}
}
