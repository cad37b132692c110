package bounds

import (
	"errors"
	"fmt"
	"math"
)

// MaxNestedBytes limits the bytes read by libraries that read the content of each nesting level
// again. Patches also keep the bytes of every level in memory. The limit allows 1.5 MB below 170
// levels, or 100 KB below 2,600.
const MaxNestedBytes = 256 << 20

// ErrNested is wrapped by errors about documents that are too deep for their size.
var ErrNested = errors.New("nested too deep for its size")

// Nested returns an error if a library would read more than MaxNestedBytes.
func Nested(work int64) error {
	if work > MaxNestedBytes {
		return fmt.Errorf("%w: its nesting levels have %d bytes in total, at most %d are allowed", ErrNested, work, MaxNestedBytes)
	}
	return nil
}

// MaxMoves limits the list elements that the operations of a JSON patch move: the library copies a
// list for each inserted or removed element. 10,000 operations that extend a list of 10,000
// elements reach it, or 100 on a list of 3 MB of digits. Operations on short lists never do.
const MaxMoves = 150_000_000

// ErrMoves is wrapped by the error about patches that exceed MaxMoves.
var ErrMoves = errors.New("too many operations on long lists")

// Moves returns an error if the operations would move more than MaxMoves elements. longest is the
// length of the longest list; it grows by more elements during the patch, on average by half of
// them.
func Moves(operations, longest, more int) error {
	if work := int64(operations) * int64(longest+more/2); work > MaxMoves {
		return fmt.Errorf("%w: %d of them and %d elements, at most %d moves are allowed", ErrMoves, operations, longest, MaxMoves)
	}
	return nil
}

// LongestList returns the number of elements in the longest list of a JSON document. The result for
// invalid JSON is undefined.
func LongestList(doc []byte) (longest int) {
	var open []int // elements so far of each open list; maps stay at 0
	for i := 0; i < len(doc); i++ {
		switch doc[i] {
		case '[':
			open = append(open, 1)
		case '{':
			open = append(open, math.MinInt)
		case ',':
			if len(open) > 0 {
				open[len(open)-1]++
			}
		case ']', '}':
			if len(open) > 0 {
				longest = max(longest, open[len(open)-1])
				open = open[:len(open)-1]
			}
		case '"':
			for i++; i < len(doc) && doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
		}
	}
	return longest
}

// shallowAnyway reports whether a document of this size cannot be too deep, since each level takes
// a byte.
func shallowAnyway(size int) bool { return int64(size)*int64(size) <= MaxNestedBytes }

// MergePatch returns an error for a JSON merge patch that is too deep for its size.
func MergePatch(doc, patch []byte) error {
	if shallowAnyway(len(doc) + len(patch)) {
		return nil
	}
	_, work := Levels(doc)
	_, more := Levels(patch)
	return Nested(work + more)
}

// Levels returns the depth of a JSON document and the sum of the bytes of its levels. The result
// for invalid JSON is undefined.
func Levels(doc []byte) (deepest int, bytes int64) {
	depth := 0
	for i := 0; i < len(doc); i++ {
		switch doc[i] {
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		case '"':
			begun := i
			for i++; i < len(doc) && doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
			bytes += int64(i-begun) * int64(depth)
		}
		bytes += int64(depth)
	}
	return deepest, bytes
}
