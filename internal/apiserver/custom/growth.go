package custom

import (
	"slices"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// maxFound is how many values a column's path may find on its way to the one that is shown.
const maxFound = 1_000_000

// growth is what makes a path find values more than once: it descends again into what it has descended into (..a..b), or names the same in several ways
// ([0,0][0,0]). The library finds them all, a number with the path's length for exponent, before the first is shown.
type growth struct {
	descents int
	named    float64 // times
}

// growthOf reads a path roughly, and may find more growth than there is. A filter has brackets within its own, and its texts and keys may have any that close
// nothing, so the names between each bracket and the next are multiplied, whatever the brackets mean: no list of names has a ] in it, and one with a [ is
// divided into factors whose product is no less than its length. ['.a'] is read like ..a by the library.
func growthOf(path string) growth {
	g := growth{descents: strings.Count(path, "..") + strings.Count(path, "'."), named: 1}
	names := 1.0
	for _, c := range path {
		switch c {
		case '[', ']':
			g.named, names = g.named*names, 1
		case ',':
			names++
		}
	}
	return g
}

// tooMuch tells of an object in which the path could find more than maxFound values. Paths that find everything once at most do not look at it.
func (g growth) tooMuch(object any) bool {
	if g.descents < 2 && g.named == 1 {
		return false
	}
	values, depth := extent(object)
	found := float64(values) * g.named
	for i := 1; i < g.descents && found <= maxFound; i++ {
		found *= float64(depth)
	}
	return found > maxFound
}

// loops tells of a path with {range}. The library goes on with the body of one without an end after it has been through it, which doubles with each of them,
// and it leaves the path cut off where it has looped last: what shares the path finds something else, or races.
func loops(node jsonpath.Node) bool {
	switch node := node.(type) {
	case *jsonpath.IdentifierNode:
		return true // range and end are all that there are
	case *jsonpath.ListNode:
		return slices.ContainsFunc(node.Nodes, loops)
	case *jsonpath.FilterNode:
		return loops(node.Left) || loops(node.Right)
	case *jsonpath.UnionNode:
		return slices.ContainsFunc(node.Nodes, func(list *jsonpath.ListNode) bool { return loops(list) })
	}
	return false
}

// extent is how many values a descent finds in one, and how deep they are. The library descends into the bytes of texts too.
func extent(value any) (values, depth int) {
	each := func(item any) {
		n, d := extent(item)
		values, depth = values+n, max(depth, d)
	}
	switch value := value.(type) {
	case map[string]any:
		for _, item := range value {
			each(item)
		}
	case []any:
		for _, item := range value {
			each(item)
		}
	case string:
		values, depth = len(value), 1
	}
	return values + 1, depth + 1
}
