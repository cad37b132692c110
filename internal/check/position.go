package check

import (
	"strconv"
	"strings"
	"unicode/utf8"

	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// place is where a path leads in a document.
type place struct {
	key   *goyaml.Node // the field's name; nil for an item of a list and for the object itself
	value *goyaml.Node
	// parent is the mapping or list that has the field.
	parent *goyaml.Node
	// whole is false if a part of the path is not in the document. The place is then the last part
	// that is.
	whole bool
}

// mark returns the node to show: the field's name, or the item.
func (p place) mark() *goyaml.Node {
	if p.key != nil {
		return p.key
	}
	return p.value
}

// find follows a path such as spec.containers[0].image or metadata.labels[app]. Paths come from
// libraries that write a map's key after a dot or in brackets, unquoted.
func find(root *goyaml.Node, path string) place {
	at := place{value: root, whole: true}
	for path != "" {
		n := follow(at.value)
		next, rest, ok := step(n, path)
		if !ok {
			at.whole = false
			return at
		}
		next.parent = n
		at, path = next, rest
	}
	return at
}

func follow(n *goyaml.Node) *goyaml.Node {
	for i := 0; n.Kind == goyaml.AliasNode && n.Alias != nil && i < maxDepth; i++ {
		n = n.Alias
	}
	return n
}

// step takes the longest key that the path begins with, or the index.
func step(n *goyaml.Node, path string) (to place, rest string, ok bool) {
	switch n.Kind {
	case goyaml.SequenceNode:
		digits, after, closed := strings.Cut(strings.TrimPrefix(path, "["), "]")
		i, err := strconv.Atoi(digits)
		if !closed || path[0] != '[' || err != nil || i < 0 || i >= len(n.Content) {
			return place{}, "", false
		}
		return place{value: n.Content[i], whole: true}, strings.TrimPrefix(after, "."), true
	case goyaml.MappingNode:
		longest := -1
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if after, fits := keyFits(path, key); fits && len(key) > longest {
				longest, ok = len(key), true
				to, rest = place{key: n.Content[i], value: n.Content[i+1], whole: true}, after
			}
		}
		if !ok {
			return inMerged(n, path)
		}
	}
	return to, rest, ok
}

// inMerged looks for a key in the mappings that << merges.
func inMerged(n *goyaml.Node, path string) (to place, rest string, ok bool) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			continue
		}
		from := []*goyaml.Node{follow(n.Content[i+1])}
		if from[0].Kind == goyaml.SequenceNode {
			from = from[0].Content
		}
		for _, m := range from {
			if m = follow(m); m != n && m.Kind == goyaml.MappingNode {
				for j := 0; j+1 < len(m.Content); j += 2 {
					if after, fits := keyFits(path, m.Content[j].Value); fits {
						return place{key: m.Content[j], value: m.Content[j+1], whole: true}, after, true
					}
				}
			}
		}
	}
	return place{}, "", false
}

// keyFits reports whether a path begins with the key, and returns the path after it.
func keyFits(path, key string) (rest string, ok bool) {
	if after, bracket := strings.CutPrefix(path, "["); bracket {
		for _, form := range []string{key, strconv.Quote(key)} {
			if rest, ok := strings.CutPrefix(after, form+"]"); ok {
				return strings.TrimPrefix(rest, "."), true
			}
		}
		return "", false
	}
	rest, ok = strings.CutPrefix(path, key)
	if !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
		return "", false
	}
	return strings.TrimPrefix(rest, "."), true
}

// width returns how many characters of its line a scalar takes; 1 for other nodes.
func width(n *goyaml.Node) int {
	if n.Kind != goyaml.ScalarNode || n.Style&(goyaml.LiteralStyle|goyaml.FoldedStyle) != 0 || strings.Contains(n.Value, "\n") {
		return 1
	}
	w := utf8.RuneCountInString(n.Value)
	if n.Style&(goyaml.DoubleQuotedStyle|goyaml.SingleQuotedStyle) != 0 {
		w += 2
	}
	return max(w, 1)
}

// parentOf splits the last field off a path.
func parentOf(path string) (parent, field string) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}
