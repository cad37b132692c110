package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/trace"
)

// Recorder takes a Record of each committed write. Append must not wait.
type Recorder interface{ Append(*causes.Record) }

// Author describes the request of a write.
type Author struct {
	User, Verb, Subresource, Manager string
	Request                          string // audit ID; "" for a call in the process
}

// leaseResource: leases are renewed all the time, and no component acts on a renewal.
var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// Describe names the object of a transaction without Put, for the causal log.
func (t *Transaction) Describe(subject runtime.Object, effect causes.Effect) {
	t.subject, t.effect = subject, effect
}

// record tells the recorder of a committed write. Leases and Events are left out: they are most of
// the writes and cause none. So are kinds with a store of their own, whose revisions are of another
// sequence.
func (t *Transaction) record(ctx context.Context, revision int64) {
	if t.Registry == nil || t.Registry.Shared.Causes == nil || t.subject == nil || t.Place != t.Registry.Shared.Home {
		return
	}
	resource := t.Registry.Resource
	if resource == leaseResource || resource.Resource == "events" && (resource.Group == "" || resource.Group == "events.k8s.io") {
		return
	}
	meta := wire.Accessor(t.subject)
	owner := ""
	for _, ref := range meta.GetOwnerReferences() {
		if ref.Controller != nil && *ref.Controller {
			owner = string(ref.UID)
		}
	}
	note := ""
	if t.Author.Subresource == "binding" { // the scheduler's context lasts for other writes, too
		note = because.Note(ctx)
	}
	t.Registry.Shared.Causes.Append(&causes.Record{
		Revision: revision, Time: t.Registry.Shared.Clock(),
		Object:      causes.Object{Group: resource.Group, Resource: resource.Resource, Namespace: meta.GetNamespace(), Name: meta.GetName()},
		Subresource: t.Author.Subresource, UID: string(meta.GetUID()), Owner: owner, Verb: t.Author.Verb, Effect: t.effect,
		Actor: t.Author.User, Manager: t.Author.Manager, Request: t.Author.Request, Because: because.From(ctx),
		Note: note, Trace: trace.Parent(ctx),
	})
}
