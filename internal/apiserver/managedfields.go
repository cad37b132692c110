package apiserver

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/bounds"
	"github.com/knarr-project/knarr/internal/api/openapi"
	"github.com/knarr-project/knarr/internal/apiserver/ownership"
)

// managerKey identifies a field manager: fields are owned per version, and per subresource.
type managerKey struct {
	gvk         schema.GroupVersionKind
	subresource string
}

type fieldManager = *managedfields.FieldManager

// typeConverter has the schemas of the built-in kinds. Parsing them takes a while, so it is done on
// first use.
var typeConverter = sync.OnceValue(func() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(api.Scheme)
})

// Prepare builds what a server's first write would otherwise wait for (about 0.1 s). It needs
// neither keys nor store. Calling it is optional.
func Prepare() { typeConverter() }

// manager returns the field manager of the kind's subresource, "" being the object itself.
func (e *endpoint) manager(subresource string) (fieldManager, error) {
	if e.custom != nil {
		return e.customManager(subresource)
	}
	key := managerKey{gvk: e.gvk, subresource: subresource}
	e.mu.Lock()
	defer e.mu.Unlock()
	if m, ok := e.managers[key]; ok {
		return m, nil
	}
	m, err := managedfields.NewDefaultFieldManager(e.typeConverter(), objectConvertor{hub: e.hub, served: e.gvk}, defaulter{e.registry},
		api.Scheme, e.gvk, e.hub.GroupVersion(), subresource, e.resetFields(subresource))
	if err != nil {
		return nil, err
	}
	e.managers[key] = m
	return m, nil
}

// typeConverter returns the converter for the endpoint's kind. Kinds without an apply configuration
// (custom resource definitions, API services) get a converter from their published schema or,
// failing that, one that deduces types from the values.
func (e *endpoint) typeConverter() managedfields.TypeConverter { return typeConverterFor(e.gvk) }

func typeConverterFor(gvk schema.GroupVersionKind) managedfields.TypeConverter {
	obj, err := api.Scheme.New(gvk)
	if err != nil {
		return managedfields.NewDeducedTypeConverter()
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	if _, err := typeConverter().ObjectToTyped(obj); err == nil {
		return typeConverter()
	}
	models, err := openapi.Models(obj)
	if err != nil {
		return managedfields.NewDeducedTypeConverter()
	}
	converter, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		return managedfields.NewDeducedTypeConverter()
	}
	if _, err := converter.ObjectToTyped(obj); err != nil {
		return managedfields.NewDeducedTypeConverter()
	}
	return converter
}

// plans caches what the trackers know of Go types.
var plans ownership.Plans

// tracker returns a faster replacement of the field manager for updates in the storage version; nil
// for other kinds and versions.
func (e *endpoint) tracker(subresource string) *ownership.Tracker {
	if e.custom != nil || e.gvk != e.hub {
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

func (e *endpoint) newTracker() *ownership.Tracker {
	obj := e.newObject()
	obj.GetObjectKind().SetGroupVersionKind(e.gvk)
	kind, err := typeConverter().ObjectToTyped(obj)
	if err != nil {
		return nil // a kind without a schema
	}
	return plans.New(e.gvk.GroupVersion(), kind, obj, e.resetFilter(""))
}

func (e *endpoint) resetFilter(subresource string) fieldpath.Filter {
	return e.resetFields(subresource)[fieldpath.APIVersion(e.gvk.GroupVersion().String())]
}

// resetFields returns the fields that a write to this (sub)resource does not change, so that its
// manager does not come to own them.
func (e *endpoint) resetFields(subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	var reset fieldpath.Set
	switch {
	case subresource == "status":
		reset.Insert(fieldpath.MakePathOrDie("spec"))
	case (subresource == "" || subresource == "finalize") && e.hasSubresource("status"):
		reset.Insert(fieldpath.MakePathOrDie("status"))
	}
	for _, name := range e.strategy.Resets[subresource] {
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
	for _, version := range e.kind.Served {
		gv := schema.GroupVersion{Group: e.gvk.Group, Version: version}
		out[fieldpath.APIVersion(gv.String())] = filter
	}
	return out
}

// trackFields removes duplicate owner references from the new object, and records in its
// managedFields what the operation's manager has set.
func (op *operation) trackFields(live, obj runtime.Object) runtime.Object {
	op.dropDoubledOwners(accessor(obj), "")
	return op.track(live, obj)
}

// track records in the new object's managedFields what the operation's manager has set.
func (op *operation) track(live, obj runtime.Object) runtime.Object {
	if op.fieldManager == "" {
		return obj
	}
	if t := op.endpoint.tracker(op.subresource); t != nil && t.Update(live, obj, op.fieldManager, time.Now()) {
		return obj
	}
	managers := accessor(obj).GetManagedFields()
	if managers == nil || op.subresource != "" {
		managers = accessor(live).GetManagedFields()
	}
	if bounds.Managers(managers, live) != nil || bounds.Managers(managers, obj) != nil {
		// Too large to process: as in forgetOwners, the write goes on without managedFields.
		accessor(obj).SetManagedFields(nil)
		return obj
	}
	m, err := op.endpoint.manager(op.subresource)
	if err != nil {
		op.endpoint.shared.log.Error("managed fields are not tracked", "kind", op.endpoint.gvk.String(), "err", err)
		return obj
	}
	obj = m.UpdateNoErrors(live, obj, op.fieldManager)
	clearKind(obj)
	return obj
}

// managerOrAgent returns the field manager of a request: manager, else the first part of its user
// agent, else "unknown".
func managerOrAgent(manager, userAgent string) string {
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

// keepManagedTimes restores the old managedFields if only their times differ, so that a write
// without effect creates no new revision.
func keepManagedTimes(r *registry, obj runtime.Object, c current) {
	since, outcome := time.Now(), otherManagedFields
	defer func() { r.shared.writes.compared[outcome].Observe(time.Since(since).Seconds()) }()
	meta := accessor(obj)
	mine, old := meta.GetManagedFields(), accessor(c.obj).GetManagedFields()
	if !slices.EqualFunc(mine, old, sameButTime) || slices.EqualFunc(mine, old, sameTime) {
		return
	}
	meta.SetManagedFields(old)
	outcome = onlyOtherTimes
	if stored, err := r.codec.encode(obj); err != nil || !bytes.Equal(stored, c.stored) {
		meta.SetManagedFields(mine)
		outcome = otherFields
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

// keepAllButStatus is the default rule of a status update: all other fields keep their old values.
func keepAllButStatus(obj, old runtime.Object) {
	newFields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return
	}
	oldFields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		return
	}
	managed := accessor(obj).GetManagedFields()
	if status, ok := newFields["status"]; ok {
		oldFields["status"] = status
	} else {
		delete(oldFields, "status")
	}
	rv := accessor(obj).GetResourceVersion()
	clearObject(obj)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(oldFields, obj); err != nil {
		return
	}
	accessor(obj).SetManagedFields(managed)
	accessor(obj).SetResourceVersion(rv)
}

// defaulter applies a kind's defaults for the field manager.
type defaulter struct{ *registry }

func (d defaulter) Default(in runtime.Object) {
	if in.GetObjectKind().GroupVersionKind() == d.hub {
		d.applyDefaults(in)
	}
}
