// Package resource holds what is particular to each built-in kind: defaults, validation, what an
// update may change, selectable fields and printer columns. One file per kind; everything is a pure function:
// no I/O and no clock. Rules come from the API reference and the comments of k8s.io/api.
package resource

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Strategy is the behaviour of one kind, in its storage version. Nil functions mean "nothing to do".
// Metadata rules common to all kinds (names, labels, annotations, finalizers, owner references,
// immutable metadata) are applied by the API server for every kind; see ValidateMeta in this package.
type Strategy struct {
	// Default fills in the defaults that upstream's defaulting for this version does. Idempotent.
	// It runs after decoding a request and after decoding a stored object.
	Default func(obj runtime.Object)

	// PrepareCreate clears what a creator may not set (usually status) and sets generation.
	PrepareCreate func(obj runtime.Object)
	// PrepareUpdate keeps what a plain update may not change (usually status) and raises generation when spec changes.
	PrepareUpdate func(obj, old runtime.Object)
	// PrepareStatus keeps what an update of the status subresource may not change (all but status).
	PrepareStatus func(obj, old runtime.Object)

	// Stamp fills in times that the server notes when an object, or a subresource of it, is updated.
	Stamp func(obj, old runtime.Object, now metav1.Time)

	ValidateCreate func(obj runtime.Object) field.ErrorList
	ValidateUpdate func(obj, old runtime.Object) field.ErrorList
	ValidateStatus func(obj, old runtime.Object) field.ErrorList
	// ValidateName checks metadata.name; prefix is true when it will get a random suffix (generateName). nil: a DNS subdomain.
	ValidateName func(name string, prefix bool) []string
	// NameRuleOnUpdate and NameRuleOnStatus: an update of the object, or of its status, holds generateName to the rule for names once more.
	NameRuleOnUpdate, NameRuleOnStatus bool
	// LateMeta: metadata is looked at only when nothing else is wrong with a new object.
	LateMeta bool
	// LooseFinalizers: finalizers of no domain are let through, beside those that Kubernetes knows.
	LooseFinalizers bool
	// Subresource holds prepare and validate of update subresources other than status (ephemeralcontainers, resize, finalize, approval).
	Subresource map[string]UpdateStrategy

	// Resets are fields, by subresource, that a write leaves as they are, so that who writes does not come to own them; besides the usual, which are
	// the status for a write of the object, and the spec for a write of the status.
	Resets map[string][]string

	// Warnings are sent to the client as Warning headers, for an object that has been prepared and is valid.
	Warnings func(obj, old runtime.Object) []string
	// WarningsAsSent are those of a create that can only be told before PrepareCreate; they are sent whether the object is valid or not.
	WarningsAsSent func(obj runtime.Object) []string

	// Fields gives the selectable fields besides metadata.name and metadata.namespace.
	Fields func(obj runtime.Object) fields.Set
	// FieldNames are the keys that Fields gives; a selector on another one is an error.
	FieldNames []string
	// FieldAliases are other names that clients may use in a field selector, with the key of Fields they mean.
	FieldAliases map[string]string

	// Columns are all printer columns of a table, in order (events don't begin with the name); Row gives one object's cells,
	// one per column. Every stored kind has both.
	Columns []metav1.TableColumnDefinition
	Row     func(obj runtime.Object, now metav1.Time) []any
	// RowOrder is that of a list's rows, where it is not the list's own.
	RowOrder func(a, b runtime.Object) int

	// AllowCreateOnUpdate lets PUT create the object (Lease, Endpoints, ...). AllowUnconditionalUpdate lets PUT omit resourceVersion.
	AllowCreateOnUpdate      bool
	AllowUnconditionalUpdate bool
	// DefaultPropagation is what a delete without propagationPolicy does; empty is Background.
	DefaultPropagation metav1.DeletionPropagation
	// GracefulDelete decides a graceful delete: it returns the grace seconds to set on the object, and whether it is to be
	// deleted gracefully at all (pods). nil: deleted at once.
	GracefulDelete func(obj runtime.Object, opts *metav1.DeleteOptions) (seconds int64, graceful bool)
}

// UpdateStrategy is Prepare and Validate of one update subresource.
type UpdateStrategy struct {
	Prepare  func(obj, old runtime.Object)
	Validate func(obj, old runtime.Object) field.ErrorList
}

// For finds the strategy of a kind; every stored row of api.Kinds has one. Functions take the hub type of the kind. A kind that
// shows another one's objects (api.Kind.Alias) has its own strategy, whose functions take the hub type of that other kind.
func For(gr schema.GroupResource) *Strategy { return strategies[gr] }
