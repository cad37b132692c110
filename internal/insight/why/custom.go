package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Causes of custom resources that are not well. They follow the conventions for conditions of the
// Kubernetes API and of kstatus.
const (
	causeCondition    = "resource-condition"
	causePhase        = "resource-phase"
	causeStatusError  = "resource-error"
	causeNotObserved  = "resource-not-observed"
	causeNoController = "resource-no-controller"
	causeOwned        = "resource-owned-objects"
	causeReference    = "resource-reference"
	causeConversion   = "resource-conversion"
)

const (
	// untouchedAfter is how long a controller has to write the status of a new custom resource.
	untouchedAfter = 30 * time.Second
	// unknownAfter is how long a condition may be Unknown.
	unknownAfter = time.Minute
	// maxConditions bounds the conditions of one object that are judged.
	maxConditions = 100
)

// goodConditions are True in a resource that works.
var goodConditions = []string{
	"Ready", "Available", "Synced", "Healthy", "Accepted", "Programmed", "ResolvedRefs", "Reconciled", "Succeeded", "Valid", "Established",
	"Initialized", "Installed", "Deployed", "Released", "Bound", "Attached", "Provisioned", "Reachable", "Connected", "InSync", "UpToDate", "Applied",
}

// badConditions are True in a resource that does not work.
var badConditions = []string{"Stalled", "Failed", "Failure", "Degraded", "Error", "Errored", "Conflicted", "Invalid", "InvalidRequest", "Denied"}

// summaries are conditions that repeat what others say.
var summaries = []string{"Ready", "Available", "Healthy"}

// badPhases are values of status.phase, status.state or status.health.status of a resource that
// does not work.
var badPhases = []string{"failed", "failure", "error", "errored", "degraded", "invalid", "unhealthy", "crashed", "rejected", "lost"}

// condition is a condition of a custom resource. Place names the part of the status that has it.
type condition struct {
	place, kind, status, reason, message string
	observed                             int64
	since                                time.Time
}

// custom explains a custom resource by its status, the objects that it owns, and its definition.
func custom(s *Snapshot, o runtime.Object) []Finding {
	u, ok := o.(*unstructured.Unstructured)
	if !ok || u.GetDeletionTimestamp() != nil {
		return nil
	}
	bad := badState(s, u)
	links := ownedLinks(s, u)
	if broken := missingReferences(s, u); len(bad) == 0 && len(broken) > 0 {
		bad = broken
	} else {
		for _, f := range broken {
			links = append(links, f.links...)
		}
	}
	if len(bad) == 0 {
		if f := untouched(s, u); f != nil {
			return []Finding{*f}
		}
		return []Finding{{Cause: causeOwned, Problem: "objects that it owns are not well.", onlyLinked: true, links: links}}
	}
	definition := Ref{"CustomResourceDefinition", "", resourceOfObject(u).String()}
	if gr, presence := s.resource(refTo(u).Kind); presence == Found {
		definition.Name = gr.String()
	}
	bad[0].links = append(bad[0].links, append(links, Link{Object: definition, Only: []string{causeCRDNames, causeCRDConversion, causeCRDPending}})...)
	bad[0].Evidence = append(bad[0].Evidence, surroundings(s, u)...)
	return bad
}

// badState finds the condition, phase or error that says that a resource does not work.
func badState(s *Snapshot, u *unstructured.Unstructured) []Finding {
	var bad []condition
	for _, c := range conditionsOf(u) {
		if c.bad(s.Now) {
			bad = append(bad, c)
		}
	}
	slices.SortStableFunc(bad, func(a, b condition) int { return cmp.Compare(a.rank(), b.rank()) })
	remedy := "Correct what the message names, or read the log of the resource's controller."
	if len(bad) > 0 {
		f := Finding{Cause: causeCondition, Problem: bad[0].String() + ".", Remedy: remedy}
		f.Evidence = []Fact{{Text: fmt.Sprintf("condition %s is %s since %s", bad[0].kind, bad[0].status, age(s.Now.Sub(bad[0].since)))}}
		if bad[0].since.IsZero() {
			f.Evidence = nil
		}
		for _, c := range bad[1:min(len(bad), 6)] {
			f.Evidence = append(f.Evidence, Fact{Text: c.String()})
		}
		return []Finding{f}
	}
	// A VolumeSnapshot has status.error.message.
	if text, _, _ := unstructured.NestedString(u.Object, "status", "error", "message"); text != "" {
		return one(causeStatusError, "its controller reports an error: "+oneLine(text), remedy)
	}
	if text, _, _ := unstructured.NestedString(u.Object, "status", "error"); text != "" {
		return one(causeStatusError, "its controller reports an error: "+oneLine(text), remedy)
	}
	for _, path := range [][]string{{"status", "phase"}, {"status", "state"}, {"status", "health", "status"}} {
		phase, _, _ := unstructured.NestedString(u.Object, path...)
		if slices.Contains(badPhases, strings.ToLower(phase)) {
			f := one(causePhase, "its "+strings.Join(path, ".")+" is "+phase+".", remedy)
			if text, _, _ := unstructured.NestedString(u.Object, "status", "message"); text != "" {
				f[0].Evidence = []Fact{{Text: oneLine(text)}}
			}
			return f
		}
	}
	return nil
}

func (c condition) String() string {
	out := "its condition " + c.kind + " is " + c.status
	if c.place != "" {
		out = "the condition " + c.kind + " of its " + c.place + " is " + c.status
	}
	if c.reason != "" {
		out += ": " + c.reason
	}
	if c.message != "" {
		out += ": " + strings.TrimRight(oneLine(c.message), ".")
	}
	return out
}

// bad reports whether a condition says that the resource does not work.
func (c condition) bad(now time.Time) bool {
	switch c.status {
	case "False":
		reason := strings.ToLower(c.reason)
		return slices.Contains(goodConditions, c.kind) || strings.HasSuffix(c.kind, "Ready") ||
			strings.Contains(reason, "fail") || strings.Contains(reason, "error") || strings.Contains(reason, "invalid")
	case "True":
		return slices.Contains(badConditions, c.kind) || strings.HasSuffix(c.kind, "Failed") || strings.HasSuffix(c.kind, "Error")
	case "Unknown":
		return slices.Contains(goodConditions, c.kind) && now.Sub(c.since) > unknownAfter
	}
	return false
}

// rank orders the conditions of one resource: those that summarize others come last.
func (c condition) rank() int {
	switch {
	case c.status == "Unknown":
		return 3
	case slices.Contains(summaries, c.kind) && c.place == "":
		return 2
	case c.status == "True":
		return 0
	}
	return 1
}

// conditionsOf reads status.conditions, and those of the parts of a status, such as the listeners
// of a Gateway or the parents of a route.
func conditionsOf(u *unstructured.Unstructured) []condition {
	status, _, _ := unstructured.NestedMap(u.Object, "status")
	out := readConditions("", status["conditions"])
	var parts []string
	for name := range status {
		parts = append(parts, name)
	}
	slices.Sort(parts)
	for _, name := range parts {
		list, _ := status[name].([]any)
		for i, item := range list[:min(len(list), maxConditions)] {
			part, _ := item.(map[string]any)
			if part == nil || name == "conditions" {
				continue
			}
			title, _, _ := unstructured.NestedString(part, "name")
			parent, _, _ := unstructured.NestedString(part, "parentRef", "name")
			place := strings.TrimSuffix(name, "s") + " " + cmp.Or(title, parent, fmt.Sprint(i))
			out = append(out, readConditions(place, part["conditions"])...)
		}
	}
	return out[:min(len(out), maxConditions)]
}

func readConditions(place string, value any) (out []condition) {
	list, _ := value.([]any)
	for _, item := range list[:min(len(list), maxConditions)] {
		m, _ := item.(map[string]any)
		text := func(key string) string { v, _ := m[key].(string); return v }
		c := condition{place: place, kind: text("type"), status: text("status"), reason: text("reason"), message: clean(text("message"), maxText)}
		c.observed, _ = m["observedGeneration"].(int64)
		c.since, _ = time.Parse(time.RFC3339, text("lastTransitionTime"))
		out = append(out, c)
	}
	return out
}

// untouched explains a resource whose controller has not seen it, or has not seen its change.
func untouched(s *Snapshot, u *unstructured.Unstructured) *Finding {
	observed, found, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	if !found {
		for _, c := range conditionsOf(u) {
			observed = max(observed, c.observed)
		}
	}
	changed := u.GetCreationTimestamp().Time
	for _, e := range u.GetManagedFields() {
		if e.Subresource == "" && e.Time != nil && e.Time.After(changed) {
			changed = e.Time.Time
		}
	}
	if observed > 0 && observed < u.GetGeneration() && s.Now.Sub(changed) > untouchedAfter {
		return &Finding{
			Cause: causeNotObserved, Problem: fmt.Sprintf("its controller has not seen its newest change: it has observed generation %d of %d.", observed, u.GetGeneration()),
			Evidence: surroundings(s, u), Remedy: "Check that the controller runs, leads and may read the resource; read its log.",
		}
	}
	if status, _, _ := unstructured.NestedMap(u.Object, "status"); len(status) > 0 || s.Now.Sub(u.GetCreationTimestamp().Time) < untouchedAfter || !hasStatus(s, u) {
		return nil
	}
	writers := writersOf(u)
	if len(writers) > 1 || len(s.events(refTo(u))) > 0 || len(ownedLinks(s, u)) > 0 {
		return nil
	}
	f := &Finding{
		Cause: causeNoController, Problem: "no controller has written its status for " + age(s.Now.Sub(u.GetCreationTimestamp().Time)) + ".",
		Remedy: "Install or start the controller of " + refTo(u).Kind + ", and check that it watches this namespace.",
	}
	if len(writers) == 1 {
		f.Evidence = []Fact{{Text: "only " + writers[0] + " has written it; it has no event and owns no object"}}
	}
	return f
}

// hasStatus reports whether the definition of a resource has a status: other kinds may be plain
// data that no controller writes.
func hasStatus(s *Snapshot, u *unstructured.Unstructured) bool {
	gr, presence := s.resource(refTo(u).Kind)
	if presence != Found {
		return false
	}
	d, presence := get[*apiextensionsv1.CustomResourceDefinition](s, "", gr.String())
	if presence != Found {
		return false
	}
	version := u.GroupVersionKind().Version
	return slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == version && v.Subresources != nil && v.Subresources.Status != nil
	})
}

func writersOf(u *unstructured.Unstructured) (out []string) {
	for _, e := range u.GetManagedFields() {
		if !slices.Contains(out, e.Manager) {
			out = append(out, e.Manager)
		}
	}
	return out
}

// surroundings returns facts around a resource that is not well: its newest warning and its owner.
func surroundings(s *Snapshot, u *unstructured.Unstructured) (out []Fact) {
	for _, e := range s.events(refTo(u)) {
		if e.Type == corev1.EventTypeWarning {
			out = append(out, Fact{Text: "event " + e.Reason + ": " + oneLine(e.Message)})
			break
		}
	}
	if owner := metav1.GetControllerOf(u); owner != nil {
		ref := ownerRef(owner, u.GetNamespace())
		out = append(out, Fact{Text: "it belongs to " + ref.String(), Object: &ref})
	}
	return out
}

func ownerRef(owner *metav1.OwnerReference, namespace string) Ref {
	gv, _ := schema.ParseGroupVersion(owner.APIVersion)
	if k, builtIn := kindNamed(owner.Kind); builtIn && k.Kind.Group == gv.Group {
		return Ref{Kind: k.Kind.Kind, Namespace: namespace, Name: owner.Name}
	}
	return Ref{Kind: owner.Kind + "." + gv.Group, Namespace: namespace, Name: owner.Name}
}

// ownedLinks links to objects that a resource owns: workloads, claims, Services, and custom
// resources of the same group.
func ownedLinks(s *Snapshot, u *unstructured.Unstructured) (out []Link) {
	resources := []schema.GroupResource{
		resourceOf[*appsv1.Deployment](), resourceOf[*appsv1.StatefulSet](), resourceOf[*appsv1.DaemonSet](), resourceOf[*appsv1.ReplicaSet](),
		resourceOf[*batchv1.Job](), resourceOf[*batchv1.CronJob](), resourceOf[*corev1.Pod](), resourceOf[*corev1.PersistentVolumeClaim](), resourceOf[*corev1.Service](),
	}
	if u.GetUID() == "" {
		return nil
	}
	kinds, _ := s.customKinds()
	group := u.GroupVersionKind().Group
	for _, k := range kinds {
		if k.resource.Group == group && k.namespaced && u.GetNamespace() != "" && len(resources) < maxOwnedKinds {
			resources = append(resources, k.resource)
		}
	}
	for _, gr := range resources {
		for _, ref := range s.ownedBy(gr, u.GetNamespace(), u.GetUID()) {
			if len(out) < maxLinks {
				out = append(out, Link{Object: ref})
			}
		}
	}
	return out
}

// maxOwnedKinds bounds the kinds in which owned objects are looked for.
const maxOwnedKinds = 30

// ownedBy returns the objects of a resource that have this owner.
func (s *Snapshot) ownedBy(gr schema.GroupResource, namespace string, owner types.UID) []Ref {
	key := need{what: "objects", resource: gr, namespace: namespace}
	index := s.owners[key]
	if index == nil {
		index = map[types.UID][]Ref{}
		for _, o := range s.objects(gr, namespace) {
			for _, r := range metaOf(o).GetOwnerReferences() {
				index[r.UID] = append(index[r.UID], refTo(o))
			}
		}
		if s.owners == nil {
			s.owners = map[need]map[types.UID][]Ref{}
		}
		s.owners[key] = index
	}
	return index[owner]
}

// missingReferences finds references of the spec, with kind and name, to objects that do not exist.
func missingReferences(s *Snapshot, u *unstructured.Unstructured) (out []Finding) {
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	seen := 0
	var walk func(path string, value any, depth int)
	walk = func(path string, value any, depth int) {
		if depth > 8 || seen > 50 {
			return
		}
		switch t := value.(type) {
		case []any:
			for _, item := range t {
				walk(path, item, depth+1)
			}
		case map[string]any:
			kind, _ := t["kind"].(string)
			name, _ := t["name"].(string)
			if kind != "" && name != "" && strings.Contains(strings.ToLower(path), "ref") {
				seen++
				namespace, _ := t["namespace"].(string)
				group, _ := t["group"].(string)
				version, _ := t["apiVersion"].(string)
				if g, _, ok := strings.Cut(version, "/"); ok && group == "" {
					group = g
				}
				if ref, ok := existing(s, group, kind, cmp.Or(namespace, u.GetNamespace()), name); !ok {
					out = append(out, linked(causeReference, "its "+strings.TrimPrefix(path, ".")+" names "+ref.String()+", which does not exist.", Link{Object: ref}))
				}
				return
			}
			keys := make([]string, 0, len(t))
			for key := range t {
				keys = append(keys, key)
			}
			slices.Sort(keys)
			for _, key := range keys {
				walk(path+"."+key, t[key], depth+1)
			}
		}
	}
	walk("", spec, 0)
	return out[:min(len(out), 10)]
}

// existing looks an object up by the group and kind of a reference. It is true unless the object is
// known to be missing.
func existing(s *Snapshot, group, kind, namespace, name string) (Ref, bool) {
	ref := Ref{Kind: kind, Namespace: namespace, Name: name}
	if k, ok := kindNamed(kind); ok && (k.Kind.Group == group || group == "") {
		if ref.Kind = k.Kind.Kind; !k.Namespaced {
			ref.Namespace = ""
		}
		_, presence := s.lookup(k.GroupResource(), ref.Namespace, name)
		return ref, presence != Absent
	}
	kinds, _ := s.customKinds()
	for _, k := range kinds {
		if k.kind != kind || k.resource.Group != group {
			continue
		}
		if ref.Kind = k.fullName(); !k.namespaced {
			ref.Namespace = ""
		}
		_, presence := s.lookup(k.resource, ref.Namespace, name)
		return ref, presence != Absent
	}
	return ref, true
}

// unconverted explains a custom resource that cannot be read, since the webhook that converts it
// between versions fails.
func unconverted(s *Snapshot, gr schema.GroupResource, ref Ref) (Finding, bool) {
	r := s.replies[need{what: "objects", resource: gr, namespace: ref.Namespace, name: ref.Name}]
	if r == nil || r.err == nil || !strings.Contains(r.err.Error(), "conversion webhook") {
		return Finding{}, false
	}
	f := linked(causeConversion, "it cannot be read: the webhook that converts it between versions fails.", Link{Object: Ref{"CustomResourceDefinition", "", gr.String()}})
	f.Subject, f.Evidence = ref, []Fact{{Text: oneLine(clean(r.err.Error(), maxText))}}
	f.Remedy = "Repair the conversion webhook of the definition: its server and its caBundle."
	return f, true
}
