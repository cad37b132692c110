package registry

import (
	"bytes"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/openapi"
	"github.com/knarr-project/knarr/internal/apiserver/ownership"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
)

// ComponentManager returns the field manager of upstream's component with that user name.
func ComponentManager(user string) string {
	switch {
	case strings.HasPrefix(user, "system:node:"):
		return "kubelet"
	case strings.HasPrefix(user, "system:serviceaccount:kube-system:"):
		return "kube-controller-manager"
	case user == auth.UserAPIServer:
		return "kube-apiserver"
	}
	return ManagerOrAgent("", strings.TrimPrefix(user, "system:"))
}

// managerKey identifies a field manager: fields are owned per version, and per subresource.
type managerKey struct {
	gvk         schema.GroupVersionKind
	subresource string
}

// FieldManager is apimachinery's field manager.
type FieldManager = *managedfields.FieldManager

// Prepare builds what a server's first write would otherwise wait for (about 0.1 s). It needs
// neither keys nor store. Calling it is optional.
func Prepare() { openapi.TypeConverter() }

// Manager returns the field manager of the kind's subresource, "" being the object itself.
func (e *Endpoint) Manager(subresource string) (FieldManager, error) {
	if e.Custom != nil {
		return e.customManager(subresource)
	}
	key := managerKey{gvk: e.GVK, subresource: subresource}
	e.mu.Lock()
	defer e.mu.Unlock()
	if m, ok := e.managers[key]; ok {
		return m, nil
	}
	m, err := managedfields.NewDefaultFieldManager(e.TypeConverter(), wire.ObjectConvertor{Hub: e.Hub, Served: e.GVK}, defaulter{e.Registry},
		api.Scheme, e.GVK, e.Hub.GroupVersion(), subresource, e.resetFields(subresource))
	if err != nil {
		return nil, err
	}
	e.managers[key] = m
	return m, nil
}

// TypeConverter returns the converter for the endpoint's kind. Kinds without an apply configuration
// (custom resource definitions, API services) get a converter from their published schema or,
// failing that, one that deduces types from the values.
func (e *Endpoint) TypeConverter() managedfields.TypeConverter {
	return openapi.TypeConverterFor(e.GVK)
}

// plans caches what the trackers know of Go types.
var plans ownership.Plans

// Tracker returns a faster replacement of the field manager for updates in the storage version; nil
// for other kinds and versions.
func (e *Endpoint) Tracker(subresource string) *ownership.Tracker {
	if e.Custom != nil || e.GVK != e.Hub {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	whole, ok := e.trackers[""]
	if !ok {
		whole = e.newTracker()
		e.trackers[""] = whole
	}
	if subresource == "" || whole == nil {
		return whole
	}
	t, ok := e.trackers[subresource]
	if !ok {
		t = whole.For(subresource, e.resetFilter(subresource))
		e.trackers[subresource] = t
	}
	return t
}

func (e *Endpoint) newTracker() *ownership.Tracker {
	obj := e.NewObject()
	obj.GetObjectKind().SetGroupVersionKind(e.GVK)
	kind, err := openapi.TypeConverter().ObjectToTyped(obj)
	if err != nil {
		return nil // a kind without a schema
	}
	return plans.New(e.GVK.GroupVersion(), kind, obj, e.resetFilter(""))
}

func (e *Endpoint) resetFilter(subresource string) fieldpath.Filter {
	return e.resetFields(subresource)[fieldpath.APIVersion(e.GVK.GroupVersion().String())]
}

// resetFields returns the fields that a write to this (sub)resource does not change, so that its
// manager does not come to own them.
func (e *Endpoint) resetFields(subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	var reset fieldpath.Set
	switch {
	case subresource == "status":
		reset.Insert(fieldpath.MakePathOrDie("spec"))
	case (subresource == "" || subresource == "finalize") && e.HasSubresource("status"):
		reset.Insert(fieldpath.MakePathOrDie("status"))
	}
	for _, name := range e.Strategy.Resets[subresource] {
		var path fieldpath.Path
		for part := range strings.SplitSeq(name, ".") {
			path = append(path, fieldpath.MakePathOrDie(part)...)
		}
		reset.Insert(path)
	}
	if reset.Empty() {
		return nil
	}
	filter := fieldpath.NewExcludeSetFilter(&reset)
	out := map[fieldpath.APIVersion]fieldpath.Filter{}
	for _, version := range e.Kind.Served {
		gv := schema.GroupVersion{Group: e.GVK.Group, Version: version}
		out[fieldpath.APIVersion(gv.String())] = filter
	}
	return out
}

// ManagerOrAgent returns the field manager of a request: manager, else the first part of its user
// agent, else "unknown".
func ManagerOrAgent(manager, userAgent string) string {
	if manager != "" {
		return manager
	}
	agent, _, _ := strings.Cut(userAgent, "/")
	agent = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, agent)
	if agent == "" {
		return "unknown"
	}
	if len(agent) > 128 {
		agent = agent[:128]
	}
	return agent
}

// KeepManagedTimes restores the old managedFields if only their times differ, so that a write
// without effect creates no new revision.
func KeepManagedTimes(r *Registry, obj runtime.Object, c StoredState) {
	since, outcome := time.Now(), telemetry.OtherManagedFields
	defer func() { r.Shared.Writes.Compared[outcome].Observe(time.Since(since).Seconds()) }()
	meta := wire.Accessor(obj)
	mine, old := meta.GetManagedFields(), wire.Accessor(c.Obj).GetManagedFields()
	if !slices.EqualFunc(mine, old, sameButTime) || slices.EqualFunc(mine, old, sameTime) {
		return
	}
	meta.SetManagedFields(old)
	outcome = telemetry.OnlyOtherTimes
	if stored, err := r.Codec.Encode(obj); err != nil || !bytes.Equal(stored, c.Stored) {
		meta.SetManagedFields(mine)
		outcome = telemetry.OtherFields
	}
}

func sameTime(a, b metav1.ManagedFieldsEntry) bool { return a.Time.Equal(b.Time) }

func sameButTime(a, b metav1.ManagedFieldsEntry) bool {
	if a.Manager != b.Manager || a.Operation != b.Operation || a.APIVersion != b.APIVersion || a.FieldsType != b.FieldsType ||
		a.Subresource != b.Subresource || (a.FieldsV1 == nil) != (b.FieldsV1 == nil) {
		return false
	}
	return a.FieldsV1 == nil || bytes.Equal(a.FieldsV1.Raw, b.FieldsV1.Raw)
}

// KeepAllButStatus is the default rule of a status update: all other fields keep their old values.
func KeepAllButStatus(obj, old runtime.Object) {
	newFields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return
	}
	oldFields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		return
	}
	managed := wire.Accessor(obj).GetManagedFields()
	if status, ok := newFields["status"]; ok {
		oldFields["status"] = status
	} else {
		delete(oldFields, "status")
	}
	rv := wire.Accessor(obj).GetResourceVersion()
	wire.ClearObject(obj)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(oldFields, obj); err != nil {
		return
	}
	wire.Accessor(obj).SetManagedFields(managed)
	wire.Accessor(obj).SetResourceVersion(rv)
}

// defaulter applies a kind's defaults for the field manager.
type defaulter struct{ *Registry }

func (d defaulter) Default(in runtime.Object) {
	if in.GetObjectKind().GroupVersionKind() == d.Hub {
		d.ApplyDefaults(in)
	}
}
