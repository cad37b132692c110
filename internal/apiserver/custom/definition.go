package custom

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/knarr-project/knarr/internal/api"
)

// Definition is a CustomResourceDefinition with its versions. Only Follow changes it.
type Definition struct {
	// CRD is an Outline. It is shared and read-only.
	CRD       *apiextensionsv1.CustomResourceDefinition
	whole     func() (*apiextensionsv1.CustomResourceDefinition, error)
	versions  []*Version
	storage   string
	call      Caller
	metrics   *Metrics
	converter *Kept[func() (managedfields.TypeConverter, error)]

	terminates atomic.Bool
	revision   atomic.Int64
}

// Outline returns the CustomResourceDefinition without managed fields, and without its schemas,
// which take most of its memory.
func Outline(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	out := *crd
	out.ManagedFields = nil
	out.Spec.Versions = slices.Clone(crd.Spec.Versions)
	for i := range out.Spec.Versions {
		out.Spec.Versions[i].Schema = nil
	}
	return &out
}

// Caller calls a conversion webhook: it sends the request's JSON and returns the response's.
type Caller func(ctx context.Context, config *apiextensionsv1.WebhookClientConfig, request []byte) ([]byte, error)

// NewDefinition makes a Definition from an outline, which may be shared but must not change. whole
// reads the same state with schemas, when they are first needed. call calls conversion webhooks,
// and metrics counts the calls.
func NewDefinition(crd *apiextensionsv1.CustomResourceDefinition, whole func() (*apiextensionsv1.CustomResourceDefinition, error), call Caller, metrics *Metrics) *Definition {
	d := &Definition{CRD: crd, whole: whole, call: call, metrics: metrics}
	d.Follow(crd)
	d.converter = NewKept(func() func() (managedfields.TypeConverter, error) { return sync.OnceValues(d.makeConverter) })
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Storage {
			d.storage = v.Name
		}
		d.versions = append(d.versions, newVersion(d, v))
	}
	return d
}

// Serves reports whether another state of the CustomResourceDefinition serves the same, so that
// caches and compiled schemas stay valid. Each change of the spec has a new generation.
func (d *Definition) Serves(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return d.CRD.UID == crd.UID && d.CRD.Generation == crd.Generation && established(d.CRD) == established(crd) &&
		apiequality.Semantic.DeepEqual(d.CRD.Status.AcceptedNames, crd.Status.AcceptedNames)
}

// Version finds a served version. A definition that is not established serves none.
func (d *Definition) Version(name string) (*Version, bool) {
	if !established(d.CRD) {
		return nil, false
	}
	for _, v := range d.versions {
		if v.spec.Name == name && v.spec.Served {
			return v, true
		}
	}
	return nil, false
}

// Versions returns all versions, served or not.
func (d *Definition) Versions() []*Version { return d.versions }

// Any finds a version, served or not: the store may still have objects in one that is not served.
func (d *Definition) Any(name string) (*Version, bool) {
	i := slices.IndexFunc(d.versions, func(v *Version) bool { return v.spec.Name == name })
	if i < 0 {
		return nil, false
	}
	return d.versions[i], true
}

// StorageKind returns the kind in the storage version.
func (d *Definition) StorageKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: d.CRD.Spec.Group, Version: d.storage, Kind: d.kind()}
}

// kind is the accepted kind, or the requested one before any is accepted.
func (d *Definition) kind() string {
	if k := d.CRD.Status.AcceptedNames.Kind; k != "" {
		return k
	}
	return d.CRD.Spec.Names.Kind
}

func (d *Definition) listKind() string {
	if k := d.CRD.Status.AcceptedNames.ListKind; k != "" {
		return k
	}
	return d.kind() + "List"
}

// Prefix returns the prefix of the objects' keys in the store.
func (d *Definition) Prefix() string { return Prefix(d.CRD) }

// Prefix returns the prefix of the objects' keys in the store, as upstream's.
func Prefix(crd *apiextensionsv1.CustomResourceDefinition) string {
	return "/registry/" + crd.Spec.Group + "/" + crd.Spec.Names.Plural
}

// Terminating reports whether the definition is being deleted. If so, no objects are created.
func (d *Definition) Terminating() bool { return d.terminates.Load() }

// Revision returns the revision of the CustomResourceDefinition that Follow got last.
func (d *Definition) Revision() int64 { return d.revision.Load() }

// Follow updates the parts of a definition that may change while it Serves the same: whether it is
// being deleted. Watchers of its objects are told so.
func (d *Definition) Follow(crd *apiextensionsv1.CustomResourceDefinition) {
	d.terminates.Store(Terminating(crd))
	if revision, err := strconv.ParseInt(crd.ResourceVersion, 10, 64); err == nil {
		d.revision.Store(revision)
	}
}

// Terminating reports whether a definition is being deleted.
func Terminating(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Terminating)
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
}

// Kind returns the row that the version would have in the table of built-in kinds.
func (v *Version) Kind() *api.Kind {
	crd, names := v.def.CRD, v.def.CRD.Status.AcceptedNames
	k := &api.Kind{
		Kind: v.GVK(), Resource: crd.Spec.Names.Plural, Singular: names.Singular, ShortNames: names.ShortNames, Categories: names.Categories,
		Namespaced: v.def.namespaced(), Served: []string{v.spec.Name}, Prefix: v.def.Prefix(),
	}
	if v.def.storage != v.spec.Name {
		k.StorageVersion = v.def.storage
	}
	if sub := v.spec.Subresources; sub != nil {
		if sub.Status != nil {
			k.Subresources = append(k.Subresources, api.Subresource{Name: "status", Kind: k.Kind, Verbs: subresourceVerbs})
		}
		if sub.Scale != nil {
			k.Subresources = append(k.Subresources, api.Subresource{Name: "scale", Kind: scaleKind, Verbs: subresourceVerbs})
		}
	}
	return k
}

var scaleKind = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}

func (d *Definition) namespaced() bool { return d.CRD.Spec.Scope == apiextensionsv1.NamespaceScoped }

// SplitName splits the name of a CustomResourceDefinition into plural and group.
func SplitName(name string) (plural, group string, ok bool) { return strings.Cut(name, ".") }
