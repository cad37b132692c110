package check

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// trail leads from a node to a value in it: indexes of Content.
type trail []int

// exampleOf finds an example of a field: in an object of the kind, or else of another kind that has
// the same type.
func (s *SchemaSet) exampleOf(gvk schema.GroupVersionKind, at located) (exampleAt, bool) {
	for _, e := range examples() {
		if e.APIVersion != gvk.GroupVersion().String() || e.Kind != gvk.Kind {
			continue
		}
		if way, ok := wayTo(e.node, at.path); ok {
			return exampleAt{e, way}, true
		}
	}
	if at.owner == "" || len(at.path) == 0 {
		return exampleAt{}, false
	}
	p, ok := s.places()[typedField{at.owner, at.field}]
	return p, ok
}

// addExample completes an explanation by an example. That of a custom kind is made from its schema.
func (s *SchemaSet) addExample(e *Explanation, gvk schema.GroupVersionKind, at located) {
	p, ok := s.exampleOf(gvk, at)
	switch {
	case ok:
		e.Example, e.ExampleOf = fragment(p.example.node, p.way), p.example.Kind+" "+p.example.Metadata.Name
		if e.Default == nil && !e.Required && len(p.way) > 0 {
			e.Default = defaultIn(p.example, p.way)
		}
	case strings.HasPrefix(s.kinds[gvk], "cluster.") || s.custom[gvk] != nil:
		e.Example, e.ExampleOf = s.sampleOf(gvk, at.path), "made from the schema"
	}
}

// wayTo finds the first value at a path; lists have it if one of their items has.
func wayTo(n *goyaml.Node, path []string) (trail, bool) {
	n = follow(n)
	if n.Kind == goyaml.SequenceNode {
		for i, item := range n.Content {
			if way, ok := wayTo(item, path); ok {
				return append(trail{i}, way...), true
			}
		}
		return nil, false
	}
	if len(path) == 0 {
		return nil, true
	}
	if n.Kind != goyaml.MappingNode {
		return nil, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != path[0] {
			continue
		}
		if len(path) == 1 {
			return trail{i + 1}, true
		}
		way, ok := wayTo(n.Content[i+1], path[1:])
		return append(trail{i + 1}, way...), ok
	}
	return nil, false
}

// typedField is a field of a type.
type typedField struct{ owner, field string }

// exampleAt is a place in an example.
type exampleAt struct {
	example example
	way     trail
}

// places finds for each field of each type the first example that has it.
func (s *SchemaSet) places() map[typedField]exampleAt {
	if s.fields == nil {
		s.fields = map[typedField]exampleAt{}
		for _, e := range examples() {
			if name, ok := s.kinds[schema.FromAPIVersionAndKind(e.APIVersion, e.Kind)]; ok {
				of, _ := s.definitions[name].(map[string]any)
				s.place(e, e.node, of, name, nil)
			}
		}
	}
	return s.fields
}

func (s *SchemaSet) place(e example, n *goyaml.Node, of map[string]any, owner string, way trail) {
	n = follow(n)
	of = s.target(of)
	switch n.Kind {
	case goyaml.SequenceNode:
		inner, _ := of["items"].(map[string]any)
		for i, item := range n.Content {
			s.place(e, item, inner, s.reference(inner), append(slices.Clone(way), i))
		}
	case goyaml.MappingNode:
		properties, _ := of["properties"].(map[string]any)
		for i := 0; i+1 < len(n.Content); i += 2 {
			field := n.Content[i].Value
			next, ok := properties[field].(map[string]any)
			if !ok {
				next, _ = of["additionalProperties"].(map[string]any)
			}
			to := append(slices.Clone(way), i+1)
			if key := (typedField{owner, field}); ok && owner != "" {
				if _, known := s.fields[key]; !known {
					s.fields[key] = exampleAt{e, to}
				}
			}
			s.place(e, n.Content[i+1], next, s.reference(next), to)
		}
	}
}

// Missing returns the fields of kinds that no example has, as Type.field, sorted. Fields that the
// system writes do not count: the status, and metadata that a client may not set.
func (s *SchemaSet) Missing(kinds []schema.GroupVersionKind) (missing []string, all int) {
	have := s.places()
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		of, _ := s.definitions[name].(map[string]any)
		properties, _ := of["properties"].(map[string]any)
		if seen[name] || properties == nil {
			return
		}
		seen[name] = true
		for _, field := range sortedKeys(properties) {
			if field == "status" && properties["spec"] != nil || strings.HasSuffix(name, ".ObjectMeta") && slices.Contains(written, field) {
				continue
			}
			all++
			if _, ok := have[typedField{name, field}]; !ok {
				missing = append(missing, strings.TrimPrefix(name, "io.k8s.")+"."+field)
			}
			if next, ok := properties[field].(map[string]any); ok {
				visit(s.reference(next))
			}
		}
	}
	for _, gvk := range kinds {
		visit(s.kinds[gvk])
	}
	slices.Sort(missing)
	return missing, all
}

// written are the fields of metadata that the API server writes.
var written = []string{"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}

// longestExample is the number of lines of an example that are shown.
const longestExample = 30

// fragment writes the value at the end of a trail, with all that leads to it. Items of lists keep
// the fields that name them.
func fragment(root *goyaml.Node, way trail) string {
	var keep func(n *goyaml.Node, way trail, top bool) *goyaml.Node
	keep = func(n *goyaml.Node, way trail, top bool) *goyaml.Node {
		n = follow(n)
		if len(way) == 0 {
			return n
		}
		out := *n
		out.Content, out.HeadComment = nil, ""
		if n.Kind == goyaml.SequenceNode {
			out.Content = []*goyaml.Node{keep(n.Content[way[0]], way[1:], false)}
			return &out
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := *n.Content[i]
			key.HeadComment, key.FootComment = "", ""
			switch {
			case i+1 == way[0]:
				out.Content = append(out.Content, &key, keep(n.Content[i+1], way[1:], false))
			case top && (key.Value == "apiVersion" || key.Value == "kind"),
				!top && n.Content[i+1].Kind == goyaml.ScalarNode && slices.Contains([]string{"name", "type", "key"}, key.Value):
				out.Content = append(out.Content, &key, n.Content[i+1])
			}
		}
		return &out
	}
	return encodeYAML(keep(root, way, true))
}

func encodeYAML(value any) string {
	var buf bytes.Buffer
	encoder := goyaml.NewEncoder(&buf)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(value); err != nil {
		return ""
	}
	lines := strings.SplitAfter(buf.String(), "\n")
	if len(lines) > longestExample+1 {
		lines = append(lines[:longestExample], fmt.Sprintf("# %d more lines\n", len(lines)-1-longestExample))
	}
	return strings.Join(lines, "")
}
