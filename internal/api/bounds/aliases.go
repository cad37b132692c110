package bounds

import (
	"bytes"
	"encoding/json"
	"fmt"

	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// MaxAliased is how many bytes all aliases of a YAML document may stand for: as many as a body may have.
const MaxAliased = 3 << 20

// Aliases tells of a YAML document whose aliases stand for too much. The library that makes JSON of it bounds how many values they stand for, but not how long
// those are: a hundred thousand aliases of one text of a megabyte fit into a body, and are a hundred gigabytes of JSON. JSON, and a document that can have no
// aliases, is not parsed.
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

// aliasing tells whether a document may have anchors and aliases.
func aliasing(doc []byte) bool {
	if bytes.HasPrefix(doc, []byte("\xff\xfe")) || bytes.HasPrefix(doc, []byte("\xfe\xff")) {
		return true // UTF-16
	}
	return !bytes.HasPrefix(doc, []byte("k8s\x00")) && named(doc, '&') && named(doc, '*') // a protobuf message is no YAML from its fourth byte on
}

// named tells whether the indicator has a name after it anywhere.
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

// aliasWalk knows how much the anchored nodes are that it has been at: 0 while it is at them.
type aliasWalk map[*goyaml.Node]int

// size is how many bytes a node has, about, and how many of them are there by aliases. More than MaxAliased is not told apart, so that nothing overflows.
func (w aliasWalk) size(n *goyaml.Node) (all, aliased int) {
	if n.Kind == goyaml.AliasNode {
		known, ok := w[n.Alias]
		if !ok {
			known, _ = w.size(n.Alias)
		}
		return known + 1, known + 1
	}
	if n.Anchor != "" {
		w[n] = 0 // one that holds itself is refused by who reads it
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
