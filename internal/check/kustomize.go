package check

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// originAnnotation is where kustomize writes the file of an object's base.
const originAnnotation = "config.kubernetes.io/origin"

// tracing is a file system that asks kustomize for the files of objects: it adds to the
// kustomization of the root folder what buildMetadata would.
type tracing struct {
	filesys.FileSystem
	root string
}

// ReadFile implements filesys.FileSystem.
func (t tracing) ReadFile(name string) ([]byte, error) {
	data, err := t.FileSystem.ReadFile(name)
	if err != nil || filepath.Dir(name) != t.root || !slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(name)) {
		return data, err
	}
	var settings map[string]any
	if yaml.Unmarshal(data, &settings) != nil || settings == nil {
		return data, nil // kustomize says what is wrong
	}
	list, _ := settings["buildMetadata"].([]any)
	settings["buildMetadata"] = append(list, "originAnnotations")
	return yaml.Marshal(settings)
}

// kustomize adds the objects that a kustomization makes. A finding is at the file of the object's
// base, if kustomize knows it. Remote bases are fetched as kubectl does it.
func (r *run) kustomize(folder string) error {
	disk := filesys.MakeFsOnDisk()
	root, err := filepath.Abs(folder)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return err
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	built, err := krusty.MakeKustomizer(options).Run(tracing{disk, root}, root)
	if err != nil {
		return fmt.Errorf("kustomize %s: %w", folder, err)
	}
	r.report.Files++
	sources := map[string][]*document{}
	for _, res := range built.Resources() {
		annotations := res.GetAnnotations()
		origin := annotations[originAnnotation]
		delete(annotations, originAnnotation)
		if err := res.SetAnnotations(annotations); err != nil {
			return fmt.Errorf("kustomize %s: %w", folder, err)
		}
		text, err := res.AsYAML()
		if err != nil {
			return fmt.Errorf("kustomize %s: %w", folder, err)
		}
		f := &file{name: "kustomize " + folder, data: text}
		if _, ok := r.order[f.name]; !ok {
			r.order[f.name] = len(r.order)
		}
		d, broken := parse(f, chunk{text: text})
		if broken != nil {
			return fmt.Errorf("kustomize %s: %s", folder, broken.Message)
		}
		o := &object{run: r, file: f, node: d.root, json: d.json, head: readHead(d.json), placeless: true}
		if o.source, err = r.sourceOf(o, folder, origin, sources); err != nil {
			return err
		}
		r.addObject(o)
	}
	return nil
}

// sourceOf finds the document of an object's base; nil if it is generated, remote or not certain.
func (r *run) sourceOf(o *object, folder, origin string, cached map[string][]*document) (*document, error) {
	var from struct {
		Path, Repo string
	}
	if yaml.Unmarshal([]byte(origin), &from) != nil || from.Path == "" || from.Repo != "" {
		return nil, nil
	}
	name := filepath.Join(folder, from.Path)
	documents, ok := cached[name]
	if !ok {
		files, err := readAll([]string{name}, bytes.NewReader(nil), false)
		if err != nil {
			return nil, nil // the origin is no file here
		}
		r.order[name] = len(r.order)
		r.report.contents[name] = files[0].data
		chunks, err := split(files[0].data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, c := range chunks {
			if d, broken := parse(&files[0], c); broken == nil {
				documents = append(documents, d)
			}
		}
		cached[name] = documents
	}
	var found *document
	length := -1
	for _, d := range documents {
		h := readHead(d.json)
		if h.Kind != o.head.Kind || h.APIVersion != o.head.APIVersion || !strings.Contains(o.head.Metadata.Name, h.Metadata.Name) {
			continue // kustomize only adds a prefix and a suffix
		}
		if len(h.Metadata.Name) > length {
			found, length = d, len(h.Metadata.Name)
		}
	}
	return found, nil
}

// atSource moves a finding about a made object to the file of its base.
func (o *object) atSource(f *Finding) {
	made, base := find(o.node, f.Path), find(o.source.root, f.Path)
	node := base.mark()
	if base.whole && made.whole && follow(made.value).Value != follow(base.value).Value {
		f.Message += fmt.Sprintf("; kustomize has made it %q", follow(made.value).Value)
		f.fix = nil
	}
	f.File, f.Line, f.Column, f.width = o.source.file.name, node.Line, node.Column, width(node)
	if f.fix == nil {
		return
	}
	if node.Value != f.fix.old && base.whole {
		node = base.value
	}
	if !base.whole || node.Value != f.fix.old {
		f.fix = nil
		return
	}
	f.fix = &replacement{node.Line, node.Column, f.fix.old, f.fix.new}
}
