package bounds

import (
	"bytes"
	"encoding/json"
	"fmt"

	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// MaxAliased limits the bytes that all aliases of a YAML document expand to. It equals the size
// limit of a request body.
const MaxAliased = 3 << 20

// Aliases returns an error for a YAML document whose aliases expand to more than MaxAliased bytes.
// The library that converts YAML to JSON limits the number of expanded values but not their length:
// a request body can hold a hundred thousand aliases of a one-megabyte text, which make a hundred
// gigabytes of JSON. JSON, and documents that cannot have aliases, are not parsed.
func Aliases(doc []byte) error {
	if !aliasing(doc) || json.Valid(doc) {
		return nil
	}
	var root goyaml.Node
	if err := goyaml.Unmarshal(doc, &root); err != nil {
		return err
	}
	w := aliasWalk{}
	if _, aliased := w.size(&root); aliased > MaxAliased {
		return fmt.Errorf("yaml: document contains excessive aliasing: its aliases stand for more than %d bytes", MaxAliased)
	}
	return nil
}

// aliasing reports whether a document may have anchors and aliases.
func aliasing(doc []byte) bool {
	if bytes.HasPrefix(doc, []byte("\xff\xfe")) || bytes.HasPrefix(doc, []byte("\xfe\xff")) {
		return true // UTF-16
	}
	// The fourth byte of a protobuf message is not valid in YAML.
	return !bytes.HasPrefix(doc, []byte("k8s\x00")) && named(doc, '&') && named(doc, '*')
}

// named reports whether the indicator is followed by a name anywhere in the document.
func named(doc []byte, indicator byte) bool {
	for {
		i := bytes.IndexByte(doc, indicator)
		if i < 0 || i+1 == len(doc) {
			return false
		}
		doc = doc[i+1:]
		switch c := doc[0]; {
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', c == '_', c == '-':
			return true
		}
	}
}

// aliasWalk caches the sizes of anchored nodes; a node has 0 while it is being visited.
type aliasWalk map[*goyaml.Node]int

// size estimates a node's bytes, and how many of them come from aliases. Both are capped above
// MaxAliased so that nothing overflows.
func (w aliasWalk) size(n *goyaml.Node) (all, aliased int) {
	if n.Kind == goyaml.AliasNode {
		known, ok := w[n.Alias]
		if !ok {
			known, _ = w.size(n.Alias)
		}
		return known + 1, known + 1
	}
	if n.Anchor != "" {
		w[n] = 0 // the decoder refuses a node that contains itself
	}
	all = len(n.Value) + 1
	for _, child := range n.Content {
		a, by := w.size(child)
		all, aliased = min(all+a, MaxAliased+len(n.Value)+1), min(aliased+by, MaxAliased+1)
	}
	if n.Anchor != "" {
		w[n] = all
	}
	return all, aliased
}
