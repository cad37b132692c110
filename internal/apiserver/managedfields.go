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

// managerKey names a field manager: fields are owned per version, and per subresource.
type managerKey struct {
	gvk         schema.GroupVersionKind
	subresource string
}

type fieldManager = *managedfields.FieldManager

// typeConverter knows the schemas of the built-in kinds; parsing them takes a while, so it is done on first use.
var typeConverter = sync.OnceValue(func() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(api.Scheme)
})

// Prepare makes what a server's first write would wait for, a tenth of a second, and needs neither keys nor store for it. Called or not, each is made once.
func Prepare() { typeConverter() }

// fieldManager tracks who owns which field of the operation's kind.
func (op *operation) manager() (fieldManager, error) {
	e := op.endpoint
	if e.custom != nil {
		return e.customManager(op.subresource)
	}
	key := managerKey{e.gvk, op.subresource}
	e.mu.Lock()
	defer e.mu.Unlock()
	if m, ok := e.managers[key]; ok {
		return m, nil
	}
	m, err := managedfields.NewDefaultFieldManager(e.typeConverter(), objectConvertor{hub: e.hub, served: e.gvk}, defaulter{e.registry},
		api.Scheme, e.gvk, e.hub.GroupVersion(), op.subresource, e.resetFields(op.subresource))
	if err != nil {
		return nil, err
	}
	e.managers[key] = m
	return m, nil
}

// typeConverter is the one that knows the kind. Kinds without an apply configuration (definitions of custom resources, API services) have one
// made of their published schema or, failing that, one that looks at the values alone.
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

// plans are the trackers' knowledge of Go types.
var plans ownership.Plans

// tracker does the field manager's work for updates of kinds that it knows in their storage version; nil for others.
func (op *operation) tracker() *ownership.Tracker {
	e := op.endpoint
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
	if op.subresource == "" || whole == nil {
		return whole
	}
	t, ok := e.trackers[op.subresource]
	if !ok {
		t = whole.For(op.subresource, e.resetFilter(op.subresource))
		e.trackers[op.subresource] = t
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

// resetFields are those that a write to this (sub)resource has no effect on, so that it does not come to own them.
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

// trackFields leaves each owner of the new object once, and records in its managedFields what the operation's manager has set.
func (op *operation) trackFields(live, obj runtime.Object) runtime.Object {
	op.dropDoubledOwners(accessor(obj), "")
	return op.track(live, obj)
}

// track records in the new object's managedFields what the operation's manager has set.
func (op *operation) track(live, obj runtime.Object) runtime.Object {
	if op.fieldManager == "" {
		return obj
	}
	if t := op.tracker(); t != nil && t.Update(live, obj, op.fieldManager, time.Now()) {
		return obj
	}
	managers := accessor(obj).GetManagedFields()
	if managers == nil || op.subresource != "" {
		managers = accessor(live).GetManagedFields()
	}
	if bounds.Managers(managers, live) != nil || bounds.Managers(managers, obj) != nil {
		accessor(obj).SetManagedFields(nil) // a write that can do without them goes on without, as when they are too large for the store
		return obj
	}
	m, err := op.manager()
	if err != nil {
		op.server.log.Error("managed fields are not tracked", "kind", op.endpoint.gvk.String(), "err", err)
		return obj
	}
	obj = m.UpdateNoErrors(live, obj, op.fieldManager)
	clearKind(obj)
	return obj
}

// managerOrAgent is the field manager of a request that names none: the first part of its user agent, or "unknown".
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

// keepManagedTimes keeps the old managedFields when nothing but their times differ, so that a write without effect
// makes no new revision.
func keepManagedTimes(r *registry, obj runtime.Object, c current) {
	since, outcome := time.Now(), otherManagedFields
	defer func() { r.server.metrics.writes.compared[outcome].Observe(time.Since(since).Seconds()) }()
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

// keepAllButStatus is the usual rule of a status update: everything but status stays as it is.
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

// defaulter gives the field manager a kind's defaults.
type defaulter struct{ *registry }

func (d defaulter) Default(in runtime.Object) {
	if in.GetObjectKind().GroupVersionKind() == d.hub {
		d.applyDefaults(in)
	}
}
