package bounds

import (
	"errors"
	"fmt"
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
