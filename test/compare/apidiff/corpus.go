package main

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed corpus/*.yaml
var corpusFiles embed.FS

// entry is a valid object with the resource that accepts it.
type entry struct {
	group, version, resource string // as in paths; group is empty for core
	kind                     string
	namespaced               bool
	object                   map[string]any
}

// readCorpus reads the valid objects; only restricts them to the named kinds.
func readCorpus(only string) ([]*entry, error) {
	files, err := corpusFiles.ReadDir("corpus")
	if err != nil {
		return nil, err
	}
	var list []*entry
	for _, f := range files {
		data, err := corpusFiles.ReadFile("corpus/" + f.Name())
		if err != nil {
			return nil, err
		}
		for doc := range strings.SplitSeq(string(data), "\n---\n") {
			text, err := yaml.YAMLToJSONStrict([]byte(doc))
			if err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", f.Name(), err, doc)
			}
			obj := decode(text).(map[string]any)
			e := &entry{kind: obj["kind"].(string), object: obj}
			e.group, e.version, _ = strings.Cut(obj["apiVersion"].(string), "/")
			if e.version == "" {
				e.group, e.version = "", e.group
			}
			if only == "" || slices.Contains(strings.Split(only, ","), e.kind) {
				list = append(list, e)
			}
		}
	}
	return list, nil
}

func prefix(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}

// collection returns the path of the resource, in the namespace if it is namespaced.
func (e *entry) collection(version, namespace string) string {
	if !e.namespaced {
		return prefix(e.group, version) + "/" + e.resource
	}
	return prefix(e.group, version) + "/namespaces/" + namespace + "/" + e.resource
}

// schema is the part of an OpenAPI v3 schema that the generator uses.
type schema struct {
	Ref        string                                  `json:"$ref"`
	Type       string                                  `json:"type"`
	Format     string                                  `json:"format"`
	Properties map[string]*schema                      `json:"properties"`
	Items      *schema                                 `json:"items"`
	Additional json.RawMessage                         `json:"additionalProperties"`
	AllOf      []*schema                               `json:"allOf"`
	OneOf      []*schema                               `json:"oneOf"`
	Enum       []any                                   `json:"enum"`
	Required   []string                                `json:"required"`
	Kinds      []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
}

// schemas holds the schemas of all group versions in the corpus by name; roots holds those of
// kinds.
type schemas struct {
	named map[string]*schema
	roots map[string]*schema // "apiVersion/kind"
}

// readSchemas reads the OpenAPI documents, and discovery, which names the resource of each kind.
func readSchemas(ctx context.Context, s *server, corpus []*entry) (*schemas, error) {
	all := &schemas{named: map[string]*schema{}, roots: map[string]*schema{}}
	seen := map[string]bool{}
	for _, e := range corpus {
		path := prefix(e.group, e.version)
		if err := e.discover(ctx, s); err != nil {
			return nil, err
		}
		if seen[path] {
			continue
		}
		seen[path] = true
		a, err := s.send(ctx, request{method: http.MethodGet, path: "/openapi/v3" + path})
		if err != nil {
			return nil, err
		}
		var doc struct {
			Components struct{ Schemas map[string]*schema }
		}
		if err := json.Unmarshal([]byte(a.text), &doc); err != nil {
			return nil, fmt.Errorf("openapi %s: %w", path, err)
		}
		maps.Copy(all.named, doc.Components.Schemas)
	}
	for _, one := range all.named {
		for _, k := range one.Kinds {
			all.roots[k.Group+"/"+k.Version+"/"+k.Kind] = one
		}
	}
	return all, nil
}

func (e *entry) discover(ctx context.Context, s *server) error {
	a, err := s.send(ctx, request{method: http.MethodGet, path: prefix(e.group, e.version)})
	if err != nil {
		return err
	}
	var list struct {
		Resources []struct {
			Name, Kind string
			Namespaced bool
		}
	}
	if err := json.Unmarshal([]byte(a.text), &list); err != nil {
		return err
	}
	for _, r := range list.Resources {
		if r.Kind == e.kind && !strings.Contains(r.Name, "/") {
			e.resource, e.namespaced = r.Name, r.Namespaced
			return nil
		}
	}
	return fmt.Errorf("%s %s: not served by %s", e.group, e.kind, s.name)
}

// resolve follows references.
func (all *schemas) resolve(s *schema) *schema {
	for s != nil {
		switch {
		case s.Ref != "":
			s = all.named[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
		case len(s.AllOf) == 1 && s.Type == "":
			s = s.AllOf[0]
		case len(s.OneOf) > 0 && s.Type == "":
			s = s.OneOf[0]
		default:
			return s
		}
	}
	return nil
}

// additional returns the schema of a map's values, or nil if s is not a map.
func (s *schema) additional() *schema {
	var of schema
	if len(s.Additional) == 0 || s.Additional[0] != '{' || json.Unmarshal(s.Additional, &of) != nil {
		return nil
	}
	return &of
}
