package check

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

var metaType = reflect.TypeFor[metav1.ObjectMeta]()

// mostFindings is how many findings one object may have.
const mostFindings = 100

// object is one object of a document.
type object struct {
	run        *run
	file       *file
	node       *goyaml.Node
	json       []byte
	duplicates []duplicate
	head       head
	kind       *kind
	reference  bool // known to other objects, not checked itself (--crds)
	placeless  bool // not in a file that can be shown
	// source is the document of the base from which kustomize has made the object; nil if there is
	// none.
	source *document

	sent  runtime.Object // in the file's version, without defaults
	hub   runtime.Object // in the version in memory, with defaults
	ready bool           // hub is valid

	// misspelt are the paths that unknown fields were probably meant to be.
	misspelt map[string]bool
	found    int
}

// head is what every object begins with.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name         string `json:"name"`
		GenerateName string `json:"generateName"`
		Namespace    string `json:"namespace"`
	} `json:"metadata"`
}

// readHead reads a head; values of the wrong type count as missing.
func readHead(doc []byte) (h head) {
	if json.Unmarshal(doc, &h) == nil {
		return h
	}
	var loose struct {
		APIVersion, Kind any
		Metadata         any
	}
	_ = json.Unmarshal(doc, &loose) // the fields are reported where they are decoded
	h = head{}
	h.APIVersion, _ = loose.APIVersion.(string)
	h.Kind, _ = loose.Kind.(string)
	if m, ok := loose.Metadata.(map[string]any); ok {
		h.Metadata.Name, _ = m["name"].(string)
		h.Metadata.Namespace, _ = m["namespace"].(string)
	}
	return h
}

func (o *object) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.head.APIVersion, o.head.Kind)
}

// accessor returns the metadata of the object in memory.
func (o *object) accessor() metav1.Object {
	m, err := meta.Accessor(o.hub)
	if err != nil {
		return &metav1.ObjectMeta{} // a review, which has none
	}
	return m
}

// title names the object in findings.
func (o *object) title() string {
	name := o.head.Metadata.Name
	if name == "" && o.head.Metadata.GenerateName != "" {
		name = o.head.Metadata.GenerateName + "*"
	}
	if ns := o.head.Metadata.Namespace; ns != "" {
		name = ns + "/" + name
	}
	return strings.TrimSpace(o.head.Kind + " " + name)
}

// fail reports an error at a path.
func (o *object) fail(path, message string) { o.note(Error, path, message) }

func (o *object) note(s Severity, path, message string) {
	o.add(Finding{Severity: s, Path: path, Message: message}, find(o.node, path).mark())
}

func (o *object) at(s Severity, path string, n *goyaml.Node, message string) {
	o.add(Finding{Severity: s, Path: path, Message: message}, n)
}

// add completes a finding with its place.
func (o *object) add(f Finding, n *goyaml.Node) {
	if o.reference {
		return
	}
	o.found++
	if o.found > mostFindings {
		if o.found == mostFindings+1 {
			o.run.add(Finding{File: o.file.name, Line: o.node.Line, Column: o.node.Column, Severity: f.Severity, Object: o.title(),
				Message: fmt.Sprintf("more than %d findings; the rest is not shown", mostFindings)})
		}
		return
	}
	f.File, f.Object, f.of = o.file.name, o.title(), o
	if o.source != nil {
		o.atSource(&f)
	} else if o.placeless {
		f.fix = nil
	} else {
		f.Line, f.Column, f.width = n.Line, n.Column, width(n)
	}
	o.run.add(f)
}
