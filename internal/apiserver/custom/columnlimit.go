package custom

import (
	"slices"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// maxFound limits the values that a column's path may find. Only the first is shown, but the
// library finds all of them.
const maxFound = 1_000_000

// growth measures how often a path can find a value. Repeated descents (..a..b) and repeated names
// ([0,0][0,0]) multiply the values: their number grows exponentially with the path's length.
type growth struct {
	descents int
	named    float64 // times
}

// growthOf does not parse the path, and may overestimate its growth. It multiplies the numbers of
// names between any two brackets, whatever these mean. This is never too little: a list of names
// contains no ], and a [ in it splits it into factors whose product is at least its length. The
// library reads ['.a'] like ..a, so it counts as a descent.
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

// exceedsLimit reports whether the path could find more than maxFound values in the object. It does
// not walk the object for paths that find each value at most once.
func (g growth) exceedsLimit(object any) bool {
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

// loops reports whether a path has {range}. The library repeats the body of a range without an end,
// so each range doubles the work. It also truncates the path after a loop: the next use of the path
// finds other values, or races.
func loops(node jsonpath.Node) bool {
	switch node := node.(type) {
	case *jsonpath.IdentifierNode:
		return true // range and end are the only identifiers
	case *jsonpath.ListNode:
		return slices.ContainsFunc(node.Nodes, loops)
	case *jsonpath.FilterNode:
		return loops(node.Left) || loops(node.Right)
	case *jsonpath.UnionNode:
		return slices.ContainsFunc(node.Nodes, func(list *jsonpath.ListNode) bool { return loops(list) })
	}
	return false
}

// extent returns the number of values that a descent finds in a value, and their depth. The library
// also descends into the bytes of strings.
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
