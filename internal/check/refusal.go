package check

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/knarr-project/knarr/internal/api"
)

// Refusal is what an API server answered to a client's write: an error, or warnings.
type Refusal struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
	// Status is the error; nil if the write had warnings alone.
	Status   *metav1.Status
	Warnings []string
	// Sent is the JSON of the object that the client sent, or of its patch. It stands for a file
	// that cannot be read again, such as a URL.
	Sent []byte
}

// Sources are the files of a client's command.
type Sources struct {
	Options
	// Patch is the text of a patch, PatchName its file or "<patch>"; nil without one.
	Patch     []byte
	PatchName string
	// Said is the client's own message. It has the errors that the client found by itself.
	Said string
	// Schema returns the schema of a kind that is not built in; nil if it is not known.
	Schema func(schema.GroupVersionKind) *apiextensionsv1.JSONSchemaProps
}

// Explain finds the places in files of what an API server has refused. The findings name the path,
// what is allowed, and the nearest right name. A finding with line 0 has no place in a file. The
// error is about files that cannot be read.
func Explain(ctx context.Context, from Sources, refusals []Refusal) (*Report, error) {
	r := newRun(ctx, from.Options)
	if len(from.Files)+len(from.Kustomize) > 0 {
		var err error
		if r, err = load(ctx, from.Options); err != nil {
			return nil, err
		}
	}
	r.decodeAll()
	r.admit()
	found := r.report.Findings
	r.report.Findings = []Finding{}
	for i := range refusals {
		e := &explanation{run: r, Refusal: &refusals[i], found: found}
		if e.Status != nil {
			e.problems = problemsOf(e.Status)
		}
		e.explain(&from)
	}
	r.explainLocal(found, from.Said)
	r.report.sort(r.order)
	return r.report, nil
}

// explainLocal reports errors that the client found before it sent anything: broken documents, and
// kinds that the API server does not have.
func (r *run) explainLocal(found []Finding, said string) {
	for _, f := range found {
		broken := f.of == nil && strings.Contains(said, "error parsing ")
		noKind := f.of != nil && f.of.kind == nil &&
			strings.Contains(said, fmt.Sprintf("no matches for kind %q in version %q", f.of.head.Kind, f.of.head.APIVersion))
		unnamed := strings.Contains(said, "Object 'Kind' is missing") && f.Path == "kind" ||
			strings.Contains(said, "Object 'apiVersion' is missing") && f.Path == "apiVersion"
		invalid := f.Severity == Error && (strings.Contains(said, fmt.Sprintf("error validating %q: ", f.File)) ||
			f.File == stdinName && strings.Contains(said, `error validating "STDIN": `))
		if broken || noKind || unnamed || invalid {
			f.Severity = Error
			r.add(f)
		}
	}
}

// explanation is the explanation of one refusal.
type explanation struct {
	*run
	*Refusal
	found    []Finding // what check finds in all files
	problems []problem
	object   *object
}

func (e *explanation) explain(from *Sources) {
	if e.object = e.source(from); e.object == nil {
		return
	}
	e.object.found = 0
	if e.object.kind == nil {
		e.object.kind = e.kindOf(from)
	}
	for _, text := range e.Warnings {
		e.object.warn([]string{text})
		e.enrich()
	}
	if e.Status == nil {
		return
	}
	if len(e.problems) == 1 && e.problems[0].path == "patch" || len(e.problems) == 0 {
		e.unlocated()
		return
	}
	for _, p := range e.problems {
		e.locate(p)
	}
}

// source returns the object of the files that was written.
func (e *explanation) source(from *Sources) *object {
	if from.Patch != nil {
		return e.patched(from)
	}
	best, most := (*object)(nil), -1
	for _, o := range e.objects {
		namespace := o.head.Metadata.Namespace
		if namespace == "" && e.Refusal.Namespace != "" {
			namespace = e.Options.Namespace
		}
		if o.reference || !e.named(o) || o.gvk().Group != e.Resource.Group || e.Refusal.Namespace != "" && namespace != e.Refusal.Namespace {
			continue
		}
		if score := e.score(o); score > most {
			best, most = o, score
		}
	}
	if best != nil {
		return best
	}
	return e.sent("")
}

// score says how well an object of the files fits: by its kind, and by the errors that check finds
// in it, as two files can have the same object.
func (e *explanation) score(o *object) (score int) {
	plural, singular := meta.UnsafeGuessKindToResource(o.gvk())
	if plural.Resource == e.Resource.Resource || singular.Resource == e.Resource.Resource || e.isResource(o) {
		score += 10
	}
	for i := range e.found {
		f := &e.found[i]
		if f.of != o || f.Severity != Error {
			continue
		}
		score++
		for _, p := range e.problems {
			if resolve(o.node, p.path) == f.Path {
				score += 100
			}
		}
	}
	return score
}

func (e *explanation) named(o *object) bool {
	return o.head.Metadata.Name == e.Name || e.Name == "" && o.head.Metadata.Name == ""
}

func (e *explanation) isResource(o *object) bool {
	k, ok := api.ByResource(e.Resource.GroupResource())
	return ok && k.Kind.Kind == o.head.Kind
}

// sent is an object without a place: the one that the client sent, if it sent a whole one.
func (e *explanation) sent(name string) *object {
	if name == "" {
		name = "a file that is not at hand"
	}
	f := &file{name: name, data: e.Sent}
	o := &object{run: e.run, file: f, placeless: true}
	if d, broken := parse(f, chunk{text: e.Sent}); broken == nil {
		o.node, o.json, o.head = d.root, d.json, readHead(d.json)
	} else if d, broken := parse(f, chunk{text: []byte("{}")}); broken == nil {
		o.node, o.json = d.root, d.json
	}
	if o.head.Kind == "" {
		if k, ok := api.ByResource(e.Resource.GroupResource()); ok {
			o.head.Kind = k.Kind.Kind
		}
		o.head.APIVersion = e.Resource.GroupVersion().String()
		o.head.Metadata.Name, o.head.Metadata.Namespace = e.Name, e.Refusal.Namespace
	}
	return o
}

// patched is the object whose fields are those of a patch.
func (e *explanation) patched(from *Sources) *object {
	f := &file{name: from.PatchName, data: from.Patch}
	o := e.sent(from.PatchName)
	d, broken := parse(f, chunk{text: from.Patch})
	if broken != nil { // a JSON patch, whose places are not its fields
		return o
	}
	e.order[f.name], e.run.report.contents[f.name] = len(e.order), f.data
	o.file, o.node, o.json, o.placeless = f, d.root, d.json, false
	return o
}

// kindOf returns the kind of a custom resource by its schema in the cluster.
func (e *explanation) kindOf(from *Sources) *kind {
	gvk := e.object.gvk()
	if k, ok := e.kinds.find(gvk); ok {
		return k
	}
	k := &kind{Kind: &api.Kind{Kind: gvk, Resource: e.Resource.Resource}, gvk: gvk}
	if from.Schema != nil {
		k.schema = from.Schema(gvk)
	}
	return k
}

// locate reports one problem: as check finds it, or else as the API server says it.
func (e *explanation) locate(p problem) {
	p.path = resolve(e.object.node, e.object.ownPath(p.path))
	for i := range e.found {
		f := &e.found[i]
		if f.of == e.object && f.Path == p.path && f.Severity == Error {
			f := *f
			if p.kind != unknownField || strings.HasPrefix(f.Message, "unknown field") {
				e.add(f)
				return
			}
		}
	}
	switch p.kind {
	case unknownField:
		e.object.reportUnknown(p.path)
	case unsupported:
		e.object.reportUnsupported(p.path, p.message, p.message)
	case conflict:
		e.object.note(Error, p.path, p.message+"; leave the field out, or take it with --force-conflicts")
	default:
		message := p.message
		if strings.Contains(message, "field is immutable") {
			message += "; delete the object and create it anew, such as by replace --force"
		}
		e.object.note(Error, p.path, message)
	}
}

// enrich turns the warning about an unknown or duplicate field, the last finding, into one with the
// nearest name.
func (e *explanation) enrich() {
	findings := e.run.report.Findings
	if len(findings) == 0 || findings[len(findings)-1].Path != "" {
		return
	}
	last := findings[len(findings)-1]
	problems := strictProblems(last.Message)
	if len(problems) == 0 {
		return
	}
	e.run.report.Findings = findings[:len(findings)-1]
	begin := len(e.run.report.Findings)
	for _, p := range problems {
		e.locate(p)
	}
	for i := begin; i < len(e.run.report.Findings); i++ {
		e.run.report.Findings[i].Severity = Warning
	}
}

// undecoded reports wrong types. The decoder names one of the values, without its place.
func (e *explanation) undecoded() {
	known := false
	for _, f := range e.found {
		if f.of == e.object && f.Severity == Error {
			known = true
			e.add(f)
		}
	}
	k := e.object.kind
	if known || k == nil || k.custom != nil || k.schema != nil {
		return
	}
	if obj, err := api.Scheme.New(k.gvk); err == nil {
		if strict, err := kjson.UnmarshalStrict(e.object.json, obj); err != nil {
			e.object.reportTypes(reflect.TypeOf(obj), err)
		} else {
			e.object.reportStrict(slices.DeleteFunc(strict, isDirective))
		}
	}
}

// isDirective reports whether an error is about a directive of a strategic merge patch, such as
// $setElementOrder, which is no field.
func isDirective(err error) bool { return strings.Contains(pathOf(err), ".$") }

// unlocated reports an error that names no field.
func (e *explanation) unlocated() {
	s := e.Status
	switch {
	case s.Reason == metav1.StatusReasonBadRequest || s.Reason == metav1.StatusReasonInvalid:
		e.undecoded()
	case s.Reason == metav1.StatusReasonNotFound && strings.HasPrefix(s.Message, "namespaces "):
		e.object.note(Error, "metadata.namespace", fmt.Sprintf("the namespace %q does not exist; create it first", e.Refusal.Namespace))
	case s.Reason == metav1.StatusReasonAlreadyExists:
		e.object.note(Error, "metadata.name", "the object exists; apply changes it, and replace overwrites it")
	case s.Reason == metav1.StatusReasonConflict && find(e.object.node, "metadata.resourceVersion").whole:
		e.object.note(Error, "metadata.resourceVersion", "the stored object has another version; leave the field out to overwrite it")
	case s.Reason == metav1.StatusReasonForbidden && !strings.Contains(s.Message, " cannot "):
		e.denied(s.Message)
	}
}
