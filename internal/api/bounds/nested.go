package bounds

import (
	"errors"
	"fmt"
	"math"
)

// MaxNestedBytes is how many bytes may be read by libraries that read what is within a level of a document again for each level: for JSON and merge
// patches, where they keep the bytes of each level too, and for schemas. 1.5 MB at the bottom of 170 levels are as many, or 100 KB at the bottom of 2,600.
const MaxNestedBytes = 256 << 20

// ErrNested is behind the errors about documents that are too deep for their size.
var ErrNested = errors.New("nested too deep for its size")

// Nested tells of a document of which so many bytes would be read.
func Nested(work int64) error {
	if work > MaxNestedBytes {
		return fmt.Errorf("%w: level by level it has %d bytes, at most %d are allowed", ErrNested, work, MaxNestedBytes)
	}
	return nil
}

// MaxMoves is how many elements of lists the operations of a JSON patch may move: the library makes a list anew for each element that is put into it, or taken out.
// 10,000 operations that make a list of 10,000 elements longer are as many, or 100 on one of 3 MB of digits. Those on short lists never are.
const MaxMoves = 150_000_000

// ErrMoves is behind the error about patches that move more.
var ErrMoves = errors.New("too many operations on long lists")

// Moves tells of so many operations that each move the elements of a list of that length, which grows by so many meanwhile: half of them are there on average.
func Moves(operations, longest, more int) error {
	if work := int64(operations) * int64(longest+more/2); work > MaxMoves {
		return fmt.Errorf("%w: %d of them and %d elements, at most %d moves are allowed", ErrMoves, operations, longest, MaxMoves)
	}
	return nil
}

// LongestList is how many elements the longest list of a JSON document has. Of what is no JSON it may say anything.
func LongestList(doc []byte) (longest int) {
	var open []int // elements so far of the lists and maps that are open; of maps none are counted
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

// shallowAnyway: nothing of that size is too deep, since each level takes a byte.
func shallowAnyway(size int) bool { return int64(size)*int64(size) <= MaxNestedBytes }

// MergePatch tells of a JSON merge patch that is not worth applying.
func MergePatch(doc, patch []byte) error {
	if shallowAnyway(len(doc) + len(patch)) {
		return nil
	}
	_, work := Levels(doc)
	_, more := Levels(patch)
	return Nested(work + more)
}

// Levels is how deep a JSON document is nested, and how many bytes its levels have together. Of what is no JSON it may say anything.
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
