package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// dependentsNow returns every dependent that existed when the owner's deletion was requested.
//
// A View that has reached the revision of that request is complete. The server is asked instead
// where the View is late (over HTTPS, the View of a quiet kind advances once a minute), or where
// the kind's revisions belong to another store. A kind cannot be listed while its extension server
// or conversion webhook is away. Then the View's content is used if allowCached, and an error is
// returned otherwise.
func (c *collector) dependentsNow(ctx context.Context, k *watched, obj metav1.Object, allowCached bool) ([]dependent, error) {
	revision, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("dependents of %s: %w", obj.GetName(), err)
	}
	wait, cancel := context.WithTimeout(ctx, syncLimit)
	defer cancel()
	var out []dependent
	for _, other := range c.all() {
		if k.namespaced && !other.namespaced {
			continue // a cluster-scoped object cannot have a namespaced owner
		}
		if view, ok := other.shown(); ok && !c.inOtherStore(k.gvr, other) && view.WaitFor(wait, revision) == nil {
			out = append(out, cachedDependents(other, obj.GetUID())...)
			continue
		}
		listed, err := c.listDependents(ctx, other, obj.GetNamespace(), obj.GetUID())
		if allowCached && ctx.Err() == nil && unlistable(err) {
			c.env.Logger().Warn("garbage collector uses its cache of a kind that cannot be listed", "resource", other.gvr.GroupResource().String(), "error", err)
			listed, err = cachedDependents(other, obj.GetUID()), nil
		}
		if err != nil {
			c.retryWith(ctx, other, item{gvr: k.gvr, namespace: obj.GetNamespace(), name: obj.GetName(), uid: obj.GetUID()}, revision)
			return nil, fmt.Errorf("dependents of %s: list %s: %w", obj.GetName(), other.gvr.GroupResource(), err)
		}
		out = append(out, listed...)
	}
	return out, nil
}

// unlistable reports whether the error means that the server of the kind is away or never ends its
// list.
func unlistable(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errSamePage) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// inOtherStore reports whether the kind is stored in another store than the owner's kind. Their
// revisions cannot be compared then. This is so if an extension server serves the kind, or if one
// of the two kinds has a store of its own.
func (c *collector) inOtherStore(owner schema.GroupVersionResource, k *watched) bool {
	if elsewhere := c.env.Config.Elsewhere; elsewhere != nil && (elsewhere(owner.GroupResource()) || elsewhere(k.gvr.GroupResource())) {
		return true
	}
	if c.services.View == nil {
		return false // this server does not serve APIServices
	}
	service, ok := c.services.Get("", k.gvr.Version+"."+k.gvr.Group)
	return ok && service.Spec.Service != nil
}

// retryWith queues the owner again as soon as the kind's View has reached the revision, the kind
// can be listed, or the kind is gone. The owner's back-off may have grown to 15 minutes by then.
// ctx is the collector's.
func (c *collector) retryWith(ctx context.Context, k *watched, owner item, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.held != nil {
		k.held[owner] = true
		return
	}
	k.held = map[item]bool{owner: true}
	c.waiting.Go(func() {
		if !c.caughtUp(ctx, k, c.inOtherStore(owner.gvr, k), revision) {
			return
		}
		c.mu.Lock()
		held := k.held
		k.held = nil
		c.mu.Unlock()
		for owner := range held {
			c.work.Add(owner)
		}
	})
}

// caughtUp waits until the kind's View has reached the revision, the server lists the kind, or the
// kind is gone. It returns false if ctx ends first. If the kind is in another store, the revision
// is not compared.
func (c *collector) caughtUp(ctx context.Context, k *watched, otherStore bool, revision int64) bool {
	select {
	case <-k.opened:
	case <-ctx.Done():
		return false
	}
	view, ok := k.shown()
	for ok && ctx.Err() == nil {
		wait, cancel := context.WithTimeout(ctx, c.limit)
		err := errOtherStore
		if !otherStore {
			err = view.WaitFor(wait, revision)
		}
		if err != nil {
			select {
			case <-k.ended: // the View has ended
				ok = false
			case <-wait.Done():
			}
		}
		cancel()
		if err == nil || !ok || c.listable(ctx, k) {
			break
		}
	}
	return ctx.Err() == nil
}

// listable reports whether the server lists the kind.
func (c *collector) listable(ctx context.Context, k *watched) bool {
	asking, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	_, err := c.env.Client.List(asking, k.gvr, metav1.NamespaceAll, metav1.ListOptions{Limit: 1})
	return err == nil
}

// cachedDependents returns the owner's dependents in the kind's View.
func cachedDependents(k *watched, owner types.UID) (out []dependent) {
	view, ok := k.shown()
	if !ok {
		return nil
	}
	for _, d := range view.ByIndex(byOwner, string(owner)) {
		out = append(out, dependent{k, accessor(d)})
	}
	return out
}

// errOtherStore marks a View whose revisions cannot be waited for.
var errOtherStore = errors.New("the kind is in another store, whose revisions cannot be compared")

// errSamePage marks a list that would never end.
var errSamePage = errors.New("the server returns the same page of the list again")

// page is the number of objects in one page of a list.
const page = 500

// listDependents lists the kind's dependents of an owner from the server; namespace "" means all.
// Each page has a time limit, and so has the whole list: a server whose list never ends must not
// occupy a worker.
func (c *collector) listDependents(ctx context.Context, k *watched, namespace string, owner types.UID) ([]dependent, error) {
	var out []dependent
	ctx, cancel := context.WithTimeout(ctx, c.total)
	defer cancel()
	opts := metav1.ListOptions{Limit: page}
	for {
		asking, cancel := context.WithTimeout(ctx, c.limit)
		list, err := c.env.Client.List(asking, k.gvr, namespace, opts)
		cancel()
		if apierrors.IsNotFound(err) {
			return nil, nil // the kind is no longer served
		}
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(list, func(item runtime.Object) error {
			obj := accessor(item)
			if slices.ContainsFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner }) {
				out = append(out, dependent{k, obj})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		m, err := meta.ListAccessor(list)
		if err != nil || m.GetContinue() == "" {
			return out, err
		}
		if m.GetContinue() == opts.Continue {
			return nil, errSamePage
		}
		opts.Continue = m.GetContinue()
	}
}
