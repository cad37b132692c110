package check

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// defaultIn returns the value that the API server gives a field of an example if it is missing; nil
// if it gives none. Defaults are code, and the schemas know few of them.
func defaultIn(e example, way trail) any {
	node := *pruned(e.node, way)
	var buf strings.Builder
	if err := goyaml.NewEncoder(&buf).Encode(&node); err != nil {
		return nil
	}
	data, err := yaml.YAMLToJSON([]byte(buf.String()))
	if err != nil {
		return nil
	}
	r := newRun(context.Background(), Options{Namespace: "default"})
	o := &object{run: r, file: &file{name: "example"}, node: &node, json: data, head: e.head, reference: true}
	r.decode(o)
	if o.hub == nil || o.kind.hub() != o.gvk().GroupVersion() {
		return nil
	}
	set, err := json.Marshal(o.hub)
	if err != nil {
		return nil
	}
	var value any
	if json.Unmarshal(set, &value) != nil {
		return nil
	}
	return valueAt(value, e.node, way)
}

// pruned copies a node without the field at the end of a trail.
func pruned(n *goyaml.Node, way trail) *goyaml.Node {
	out := *follow(n)
	out.Content = slices.Clone(out.Content)
	switch at := way[0]; {
	case len(way) > 1:
		out.Content[at] = pruned(out.Content[at], way[1:])
	case out.Kind == goyaml.MappingNode:
		out.Content = slices.Delete(out.Content, at-1, at+1)
	}
	return &out
}

// valueAt follows a trail of a node in a decoded value.
func valueAt(value any, n *goyaml.Node, way trail) any {
	for _, at := range way {
		n = follow(n)
		switch v := value.(type) {
		case map[string]any:
			if n.Kind != goyaml.MappingNode {
				return nil
			}
			value = v[n.Content[at-1].Value]
		case []any:
			if at >= len(v) {
				return nil
			}
			value = v[at]
		default:
			return nil
		}
		n = n.Content[at]
	}
	return value
}
