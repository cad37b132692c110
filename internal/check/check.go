package check

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	psapi "k8s.io/pod-security-admission/api"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// Options are what a check can be told.
type Options struct {
	// Files are files and folders; "-" is Stdin. Recursive reads folders below folders.
	Files     []string
	Recursive bool
	Stdin     io.Reader
	// Kustomize are folders with a kustomization; the objects that it makes are checked.
	Kustomize []string
	// CRDs are files and folders with definitions, policies and other objects that the checked ones
	// refer to. They are not checked themselves.
	CRDs []string
	// Namespace is that of objects without one; default "default".
	Namespace string
	// PodSecurity is the Pod Security level of namespaces without labels: privileged (the default),
	// baseline or restricted.
	PodSecurity string
	// Closed means that the files are all objects of the cluster. A reference to another object is
	// then an error.
	Closed bool
}

// run is one check.
type run struct {
	Options
	ctx     context.Context
	kinds   *kinds
	objects []*object
	report  *Report
	order   map[string]int
	files   *cluster // what admission looks up
}

// Run checks the files. The error is about files that cannot be read, and wrong options.
func Run(ctx context.Context, opts Options) (*Report, error) {
	r, err := load(ctx, opts)
	if err != nil {
		return nil, err
	}
	r.check()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, o := range r.objects {
		if !o.reference {
			r.report.Objects++
		}
	}
	r.report.sort(r.order)
	return r.report, nil
}

// load reads and parses the files.
func load(ctx context.Context, opts Options) (*run, error) {
	if opts.Namespace == "" {
		opts.Namespace = "default"
	}
	if opts.PodSecurity == "" {
		opts.PodSecurity = string(psapi.LevelPrivileged)
	}
	if _, err := psapi.ParseLevel(opts.PodSecurity); err != nil {
		return nil, fmt.Errorf("the Pod Security level is %q; allowed are privileged, baseline and restricted", opts.PodSecurity)
	}
	if len(opts.Files)+len(opts.Kustomize) == 0 {
		return nil, fmt.Errorf("no file is given; name files or folders, or - for standard input")
	}
	files, err := readAll(opts.Files, opts.Stdin, opts.Recursive)
	if err != nil {
		return nil, err
	}
	known, err := readAll(opts.CRDs, opts.Stdin, true)
	if err != nil {
		return nil, err
	}
	r := newRun(ctx, opts)
	if err := r.kinds.declare(); err != nil {
		return nil, err
	}
	r.report.Files = len(files)
	for i := range files {
		if err := r.take(&files[i]); err != nil {
			return nil, err
		}
	}
	for _, folder := range opts.Kustomize {
		if err := r.kustomize(folder); err != nil {
			return nil, err
		}
	}
	for i := range known {
		if err := r.parse(&known[i], true); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func newRun(ctx context.Context, opts Options) *run {
	return &run{
		Options: opts, ctx: ctx, kinds: newKinds(), order: map[string]int{},
		report: &Report{Findings: []Finding{}, contents: map[string][]byte{}},
	}
}

// take adds a file whose objects are checked.
func (r *run) take(f *file) error {
	r.order[f.name] = len(r.order)
	r.report.contents[f.name] = f.data
	return r.parse(f, false)
}

func (r *run) add(f Finding) { r.report.Findings = append(r.report.Findings, f) }

// parse adds the objects of a file.
func (r *run) parse(f *file, reference bool) error {
	chunks, err := split(f.data)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	for _, c := range chunks {
		d, broken := parse(f, c)
		switch {
		case broken == nil:
			r.addDocument(d, reference)
		case reference:
			return fmt.Errorf("%s:%d: %s", broken.File, broken.Line, broken.Message)
		default:
			r.add(*broken)
		}
	}
	if len(chunks) == 0 && !f.listed && !reference {
		r.add(Finding{File: f.name, Line: 1, Column: 1, Severity: Warning, Message: "the file has no objects"})
	}
	return nil
}

// addDocument adds the object of a document, or the items of a List.
func (r *run) addDocument(d *document, reference bool) {
	o := &object{run: r, file: d.file, node: d.root, json: d.json, head: readHead(d.json), reference: reference}
	items := find(d.root, "items")
	if !strings.HasSuffix(o.head.Kind, "List") || !items.whole || follow(items.value).Kind != goyaml.SequenceNode {
		o.duplicates = d.duplicates
		r.addObject(o)
		return
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(d.json, &list); err != nil {
		o.fail("items", err.Error())
		return
	}
	of := strings.TrimSuffix(o.head.Kind, "List")
	for i, raw := range list.Items {
		node := follow(follow(items.value).Content[i])
		item := &object{run: r, file: d.file, node: node, json: raw, head: readHead(raw), reference: reference}
		if of != "" && item.head.Kind == "" && item.head.APIVersion == "" {
			item.head.Kind, item.head.APIVersion = of, o.head.APIVersion
		}
		prefix := fmt.Sprintf("items[%d].", i)
		for _, dup := range d.duplicates {
			if path, ok := strings.CutPrefix(dup.path, prefix); ok {
				dup.path = path
				item.duplicates = append(item.duplicates, dup)
			}
		}
		if node.Kind != goyaml.MappingNode {
			item.fail("", errNoObject.Error())
			continue
		}
		r.addObject(item)
	}
}

// tool kinds are files of tools; they are no objects of a cluster.
func ofTool(h head) bool {
	return strings.HasPrefix(h.APIVersion, "kustomize.config.k8s.io/") || strings.HasPrefix(h.APIVersion, "skaffold/") ||
		strings.HasPrefix(h.APIVersion, "kind.x-k8s.io/") || strings.HasPrefix(h.APIVersion, "apiserver.config.k8s.io/") ||
		strings.HasPrefix(h.APIVersion, "kubelet.config.k8s.io/") || h.APIVersion == "v1" && h.Kind == "Config"
}

func (r *run) addObject(o *object) {
	switch {
	case ofTool(o.head):
		o.note(Warning, "kind", fmt.Sprintf("not checked: a %s of %s is the file of a tool", o.head.Kind, o.head.APIVersion))
		return
	case o.head.APIVersion == "" && o.head.Kind == "" && o.file.listed:
		o.note(Warning, "", "not checked: there is neither apiVersion nor kind")
		return
	case o.head.APIVersion == "":
		o.fail("apiVersion", "required; the API group and version, such as apps/v1")
		return
	case o.head.Kind == "":
		o.fail("kind", "required; such as Deployment")
		return
	}
	r.objects = append(r.objects, o)
}

// check decodes all objects, validates them, and follows references.
func (r *run) check() {
	r.decodeAll()
	r.reportRepeated()
	r.admit()
	r.follow()
}

// decodeAll decodes all objects, definitions first.
func (r *run) decodeAll() {
	for _, definitions := range []bool{true, false} {
		for _, o := range r.objects {
			if isDefinition(o) == definitions && r.ctx.Err() == nil {
				r.decode(o)
			}
			if definitions && isDefinition(o) {
				r.define(o)
			}
		}
	}
}

func isDefinition(o *object) bool {
	return o.gvk().GroupKind() == apiextensionsv1.Kind("CustomResourceDefinition")
}

// decode finds the object's kind, decodes it and brings it into the form in memory.
func (r *run) decode(o *object) {
	k, ok := r.kinds.find(o.gvk())
	if !ok {
		r.reportUnknownKind(o)
		return
	}
	o.kind = k
	if o.decode() {
		o.toHub()
	}
}

// reportUnknownKind reports a kind that is not served.
func (r *run) reportUnknownKind(o *object) {
	u := r.kinds.explain(o.gvk(), r.Closed)
	at := find(o.node, u.field)
	f := Finding{Severity: u.severity, Path: u.field, Message: u.message, Nearest: u.nearest}
	if len(u.nearest) == 1 && at.whole {
		f.fix = o.replace(at.value, u.nearest[0])
	}
	node := at.mark()
	if at.whole {
		node = at.value
	}
	o.add(f, node)
}

// define makes the kinds of a definition known. A definition with errors defines none.
func (r *run) define(o *object) {
	crd, ok := o.hub.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return
	}
	errors := r.report.Count(Error)
	o.validate()
	if r.report.Count(Error) == errors {
		r.kinds.define(crd)
		return
	}
	for gvk := range r.kinds.custom {
		if gvk.Group == crd.Spec.Group && gvk.Kind == crd.Spec.Names.Kind {
			delete(r.kinds.custom, gvk)
		}
	}
	r.kinds.broken[schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}] = true
}

// reportRepeated reports objects with the name of an earlier one: the last one would win.
func (r *run) reportRepeated() {
	type identity struct{ group, kind, namespace, name string }
	first := map[identity]*object{}
	for _, o := range r.objects {
		if o.hub == nil || o.head.Metadata.Name == "" {
			continue
		}
		id := identity{o.gvk().Group, o.head.Kind, o.accessor().GetNamespace(), o.head.Metadata.Name}
		if before, ok := first[id]; ok {
			o.note(Warning, "metadata.name", fmt.Sprintf("the same object is in %s:%d", before.file.name, before.node.Line))
			continue
		}
		first[id] = o
	}
}
