// Package strategy holds the type that describes the behaviour of one kind, and what strategies are
// built of: shapes that most kinds share, adapters from functions of one Go type, and the rules for
// metadata. It knows no kind.
package strategy

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Strategy is the behaviour of one kind in its hub version. A nil function does nothing. The API
// server itself applies the metadata rules that all kinds share (names, labels, annotations,
// finalizers, owner references, immutable metadata); see ValidateMeta.
type Strategy struct {
	// Default sets upstream's defaults for this version. It is idempotent. It runs on every decoded
	// request and every decoded stored object.
	Default func(obj runtime.Object)
	// Share replaces parts of a decoded stored object by equal parts of others, to save memory.
	// The object is read-only from then on.
	Share func(obj runtime.Object)

	// PrepareCreate clears fields that a creator may not set (usually status) and sets generation.
	PrepareCreate func(obj runtime.Object)
	// PrepareUpdate restores fields that a plain update may not change (usually status). It raises
	// generation when spec changes.
	PrepareUpdate func(obj, old runtime.Object)
	// PrepareStatus restores everything that an update of the status subresource may not change.
	PrepareStatus func(obj, old runtime.Object)

	// SetTimes sets the times of new parts of the object, in creates and in updates, before
	// PrepareCreate or PrepareUpdate.
	SetTimes func(obj runtime.Object, now metav1.Time)
	// SetRequester records the user who creates the object.
	SetRequester func(obj runtime.Object, user authenticationv1.UserInfo)
	// Stamp sets the times that the server records in updates of the object or a subresource.
	Stamp func(obj, old runtime.Object, now metav1.Time)

	ValidateCreate func(obj runtime.Object) field.ErrorList
	ValidateUpdate func(obj, old runtime.Object) field.ErrorList
	ValidateStatus func(obj, old runtime.Object) field.ErrorList
	// ValidateName checks metadata.name. prefix is true for a generateName, which gets a random
	// suffix. nil: a DNS subdomain.
	ValidateName func(name string, prefix bool) []string
	// NameRuleOnUpdate and NameRuleOnStatus apply the name rule to generateName again in updates of
	// the object and of its status.
	NameRuleOnUpdate, NameRuleOnStatus bool
	// LateMeta validates a new object's metadata only when the rest is valid.
	LateMeta bool
	// LooseFinalizers accepts finalizers without a domain besides Kubernetes' own.
	LooseFinalizers bool
	// Subresource maps update subresources other than status to their functions
	// (ephemeralcontainers, resize, finalize, approval).
	Subresource map[string]UpdateStrategy

	// Resets lists, by subresource, fields that a write leaves unchanged and therefore does not own
	// (server-side apply). It adds to the usual fields: status for a write of the object, spec for
	// a write of the status.
	Resets map[string][]string

	// Warnings returns the Warning headers for a prepared and valid object.
	Warnings func(obj, old runtime.Object) []string
	// WarningsAsSent returns warnings of a create that need the object before PrepareCreate. They
	// are sent for invalid objects as well.
	WarningsAsSent func(obj runtime.Object) []string

	// Fields returns the selectable fields besides metadata.name and metadata.namespace.
	Fields func(obj runtime.Object) fields.Set
	// FieldNames are the keys of Fields; a selector on another key is an error.
	FieldNames []string
	// FieldAliases maps other names that field selectors may use to keys of Fields.
	FieldAliases map[string]string

	// Columns are all printer columns of a table, in order; those of Event do not start with the
	// name. Row returns one object's cells, one per column. Every stored kind has both.
	Columns []metav1.TableColumnDefinition
	Row     func(obj runtime.Object, now metav1.Time) []any
	// RowOrder sorts a table's rows. nil: the order of the list.
	RowOrder func(a, b runtime.Object) int

	// AllowCreateOnUpdate lets PUT create the object (Lease, Endpoints, ...).
	// AllowUnconditionalUpdate lets PUT omit resourceVersion.
	AllowCreateOnUpdate      bool
	AllowUnconditionalUpdate bool
	// DefaultPropagation applies to a delete without propagationPolicy; empty means Background.
	DefaultPropagation metav1.DeletionPropagation
	// GracefulDelete returns the grace seconds to set on the object and whether the delete is
	// graceful at all (pods). nil: always delete at once.
	GracefulDelete func(obj runtime.Object, opts *metav1.DeleteOptions) (seconds int64, graceful bool)

	gated []gatedFields
}

// UpdateStrategy prepares and validates writes of one update subresource.
type UpdateStrategy struct {
	Prepare  func(obj, old runtime.Object)
	Validate func(obj, old runtime.Object) field.ErrorList
}
