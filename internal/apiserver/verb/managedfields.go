package verb

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/api/bounds"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// TrackFields removes duplicate owner references from the new object, and records in its
// managedFields what the operation's manager has set. live is nil for a create.
func (op *Operation) TrackFields(live, obj runtime.Object) runtime.Object {
	op.DropDuplicateOwners(wire.Accessor(obj), "")
	return op.track(live, obj)
}

// track records in the new object's managedFields what the operation's manager has set.
func (op *Operation) track(live, obj runtime.Object) runtime.Object {
	if op.FieldManager == "" {
		return obj
	}
	t := op.Endpoint.Tracker(op.Subresource)
	switch {
	case live != nil && t != nil && t.Update(live, obj, op.FieldManager, time.Now()):
		return obj
	case live == nil && t != nil && t.Create(obj, op.FieldManager, time.Now()):
		return obj
	case live == nil:
		live = op.Endpoint.NewObject()
	}
	managers := wire.Accessor(obj).GetManagedFields()
	if managers == nil || op.Subresource != "" {
		managers = wire.Accessor(live).GetManagedFields()
	}
	if bounds.Managers(managers, live) != nil || bounds.Managers(managers, obj) != nil {
		// Too large to process: as in dropManagedFields, the write goes on without managedFields.
		wire.Accessor(obj).SetManagedFields(nil)
		return obj
	}
	m, err := op.Endpoint.Manager(op.Subresource)
	if err != nil {
		op.Endpoint.Shared.Log.Error("managed fields are not tracked", "kind", op.Endpoint.GVK.String(), "err", err)
		return obj
	}
	obj = m.UpdateNoErrors(live, obj, op.FieldManager)
	wire.ClearKind(obj)
	return obj
}
