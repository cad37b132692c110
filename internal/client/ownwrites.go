package client

import (
	"context"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/cache"
)

// ownWriteTimeout bounds the wait for read-your-writes over HTTPS. A write returns when every View
// that was opened through the same Interface and covers the object shows the write or a newer
// state. The watch usually brings it within a millisecond. If it does not come in time, because the
// watch is broken and is being reopened, the write returns anyway.
const ownWriteTimeout = 5 * time.Second

// newEnough reports whether a view's entry of an object is new enough; nil means that there is no
// entry.
type newEnough func(e *cache.Entry) bool

// waitShown waits until the views show an object that was created or changed.
func (r *remote) waitShown(ctx context.Context, res schema.GroupVersionResource, obj runtime.Object) {
	acc, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	revision := revisionOf(acc.GetResourceVersion())
	if revision == 0 {
		return
	}
	r.views.each(res.GroupResource(), func(scope Scope, v View) {
		if scope.Namespace != "" && scope.Namespace != acc.GetNamespace() {
			return
		}
		matches := scope.matches(obj, acc)
		r.waitUntil(ctx, v, acc.GetNamespace(), acc.GetName(), func(e *cache.Entry) bool {
			if e == nil {
				// A missing object that matches is still to come, or already deleted. After a
				// deletion the view has reached a newer revision.
				return !matches
			}
			return e.Revision >= revision
		}, revision)
	})
}

// waitDeleted waits until the views show that an object is gone or has a deletionTimestamp.
// answer is the server's: a Status or the object.
func (r *remote) waitDeleted(ctx context.Context, res schema.GroupVersionResource, namespace, name string, answer runtime.Object, opts metav1.DeleteOptions) {
	if len(opts.DryRun) > 0 {
		return
	}
	uid, revision := "", int64(0)
	switch o := answer.(type) {
	case nil:
	case *metav1.Status:
		if o.Details != nil {
			uid = string(o.Details.UID)
		}
	default:
		if acc, err := meta.Accessor(o); err == nil {
			uid = string(acc.GetUID())
			if acc.GetDeletionTimestamp() != nil {
				revision = revisionOf(acc.GetResourceVersion())
			}
		}
	}
	r.views.each(res.GroupResource(), func(scope Scope, v View) {
		if scope.Namespace != "" && scope.Namespace != namespace {
			return
		}
		r.waitUntil(ctx, v, namespace, name, func(e *cache.Entry) bool {
			return e == nil || uid != "" && e.UID != uid || revision > 0 && e.Revision >= revision || beingDeleted(e)
		}, revision)
	})
}

// waitSubresource waits for the effect that a request to a subresource has on the object, where
// this effect is known.
func (r *remote) waitSubresource(ctx context.Context, res schema.GroupVersionResource, namespace, name, subresource string, sent, answer runtime.Object) {
	switch subresource {
	case "binding":
		binding, ok := sent.(*corev1.Binding)
		if !ok {
			return
		}
		r.views.each(res.GroupResource(), func(scope Scope, v View) {
			if scope.Namespace != "" && scope.Namespace != namespace {
				return
			}
			r.waitUntil(ctx, v, namespace, name, func(e *cache.Entry) bool {
				if e == nil {
					// A view of unbound pods does not show the pod any more. A view of bound pods
					// may still miss it, but only the node has one, and the node does not bind
					// pods.
					return true
				}
				obj, err := e.Object()
				pod, ok := obj.(*corev1.Pod)
				return err != nil || !ok || pod.Spec.NodeName == binding.Target.Name
			}, 0)
		})
	case "eviction":
		r.waitDeleted(ctx, res, namespace, name, nil, metav1.DeleteOptions{})
	default:
		if acc, err := meta.Accessor(answer); err == nil && acc.GetResourceVersion() != "" && acc.GetName() == name {
			r.waitShown(ctx, res, answer)
		}
	}
}

func beingDeleted(e *cache.Entry) bool {
	obj, err := e.Object()
	if err != nil {
		return true
	}
	acc, err := meta.Accessor(obj)
	return err != nil || acc.GetDeletionTimestamp() != nil
}

// waitUntil waits until the view's entry is new enough, or the view has reached the revision
// (unless 0).
func (r *remote) waitUntil(ctx context.Context, v View, namespace, name string, enough newEnough, revision int64) {
	kind := v.(*view).kind.Load()
	ctx, cancel := context.WithTimeout(ctx, ownWriteTimeout)
	defer cancel()
	for {
		snap := kind.Snapshot()
		e, _ := snap.Get(keyOf(namespace, name))
		if enough(e) || revision > 0 && snap.Revision() >= revision {
			return
		}
		cursor, err := kind.Watch(snap.Revision(), cache.Interest{Namespace: namespace, Name: name})
		if err != nil {
			return
		}
		changes, _, err := cursor.Next(ctx)
		cursor.Close()
		if err != nil || len(changes) == 0 {
			slog.Debug("a view does not show a write in time", "component", "client", "namespace", namespace, "name", name, "error", err)
			return
		}
	}
}

// matches reports whether an object is in the scope.
func (s Scope) matches(obj runtime.Object, acc metav1.Object) bool {
	i, err := s.interest()
	if err != nil {
		return false
	}
	if i.Labels != nil && !i.Labels.Matches(labels.Set(acc.GetLabels())) {
		return false
	}
	if i.Fields == nil || i.Fields.Empty() {
		return true
	}
	set := fields.Set{"metadata.name": acc.GetName(), "metadata.namespace": acc.GetNamespace()}
	var content map[string]any
	for _, req := range i.Fields.Requirements() {
		if _, ok := set[req.Field]; ok {
			continue
		}
		if content == nil {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				content = u.Object
			} else if content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err != nil {
				return false
			}
		}
		// For nearly all kinds, a field of a field selector is the path of a string.
		value, _, _ := unstructured.NestedString(content, strings.Split(req.Field, ".")...)
		set[req.Field] = value
	}
	return i.Fields.Matches(set)
}
