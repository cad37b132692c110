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

// dependentsNow are an owner's dependents, none of those missing that were there when its deletion was asked for: Views show them that have reached it. Of
// kinds whose Views are late (those over HTTPS hear of a quiet kind once a minute), or whose revisions are of another store, the server is asked. Of those that it
// can not list, because an extension server or a conversion webhook is away, what has been seen is all there is, if that will do.
func (c *collector) dependentsNow(ctx context.Context, k *watched, obj metav1.Object, seenWillDo bool) ([]dependent, error) {
	revision, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("dependents of %s: %w", obj.GetName(), err)
	}
	wait, cancel := context.WithTimeout(ctx, syncLimit)
	defer cancel()
	var out []dependent
	for _, other := range c.all() {
		if k.namespaced && !other.namespaced {
			continue // can have no namespaced owners
		}
		if view, ok := other.shown(); ok && !c.apart(k.gvr, other) && view.WaitFor(wait, revision) == nil {
			out = append(out, seen(other, obj.GetUID())...)
			continue
		}
		listed, err := c.listDependents(ctx, other, obj.GetNamespace(), obj.GetUID())
		if seenWillDo && ctx.Err() == nil && unlistable(err) {
			c.env.Logger().Warn("garbage collector goes by what it has seen of a kind that can not be listed", "resource", other.gvr.GroupResource().String(), "error", err)
			listed, err = seen(other, obj.GetUID()), nil
		}
		if err != nil {
			c.retryWith(ctx, other, item{gvr: k.gvr, namespace: obj.GetNamespace(), name: obj.GetName(), uid: obj.GetUID()}, revision)
			return nil, fmt.Errorf("dependents of %s: list %s: %w", obj.GetName(), other.gvr.GroupResource(), err)
		}
		out = append(out, listed...)
	}
	return out, nil
}

// unlistable tells whether a list's error says that whoever has the objects is away, or does not give them.
func unlistable(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errSamePage) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// apart tells whether the kind's objects lie in another store than those of an owner's kind: its revisions say nothing of when something happened there. So it is
// when an extension server answers for the kind, or when one of the two has a store of its own.
func (c *collector) apart(owner schema.GroupVersionResource, k *watched) bool {
	if elsewhere := c.env.Config.Elsewhere; elsewhere != nil && (elsewhere(owner.GroupResource()) || elsewhere(k.gvr.GroupResource())) {
		return true
	}
	if c.services.View == nil {
		return false // the server knows nothing of others
	}
	service, ok := c.services.Get("", k.gvr.Version+"."+k.gvr.Group)
	return ok && service.Spec.Service != nil
}

// retryWith has an owner looked at again as soon as the View of a kind that could not be listed has got as far as a revision, or the kind has gone: its back-off
// may have grown to a quarter of an hour by then. ctx is the collector's.
func (c *collector) retryWith(ctx context.Context, k *watched, owner item, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.held != nil {
		k.held[owner] = true
		return
	}
	k.held = map[item]bool{owner: true}
	c.waiting.Go(func() {
		if !c.caughtUp(ctx, k, c.apart(owner.gvr, k), revision) {
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

// caughtUp waits until a kind's View has got as far as a revision, or the server lists it, or the kind has gone; false when ctx ends before. The View of
// a kind that lies apart may be as far without having seen anything.
func (c *collector) caughtUp(ctx context.Context, k *watched, apart bool, revision int64) bool {
	select {
	case <-k.opened:
	case <-ctx.Done():
		return false
	}
	view, ok := k.shown()
	for ok && ctx.Err() == nil {
		wait, cancel := context.WithTimeout(ctx, c.limit)
		err := errApart
		if !apart {
			err = view.WaitFor(wait, revision)
		}
		if err != nil {
			select {
			case <-k.ended: // it waits for nothing any more
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

// listable tells whether the server lists the kind.
func (c *collector) listable(ctx context.Context, k *watched) bool {
	asking, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	_, err := c.env.Client.List(asking, k.gvr, metav1.NamespaceAll, metav1.ListOptions{Limit: 1})
	return err == nil
}

// seen are the dependents that a kind's View shows.
func seen(k *watched, owner types.UID) (out []dependent) {
	view, ok := k.shown()
	if !ok {
		return nil
	}
	for _, d := range view.ByIndex(byOwner, string(owner)) {
		out = append(out, dependent{k, accessor(d)})
	}
	return out
}

// errApart: nothing can be waited for.
var errApart = errors.New("the kind's revisions are another store's")

// errSamePage: the list would never come to its end.
var errSamePage = errors.New("the server goes on with the page that it has just given")

// page is how many objects are listed at a time.
const page = 500

// listDependents asks the server for a kind's dependents of an owner. namespace "" is all. Each page has its time, and all of them together have one that no
// kind needs: a server that goes on forever does not keep a worker.
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
			return nil, nil // the kind is served no more
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
