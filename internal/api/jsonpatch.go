package api

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/knarr-project/knarr/internal/api/bounds"
)

// MaxJSONPatchCopies limits the bytes that the copy operations of one JSON patch may add, as
// upstream. Without it, each copy could double the document.
const MaxJSONPatchCopies = 3 * 1024 * 1024

// DecodeJSONPatch decodes an RFC 6902 patch. ApplyJSONPatch applies it within bounds.
func DecodeJSONPatch(data []byte) (jsonpatch.Patch, error) { return jsonpatch.DecodePatch(data) }

// MaxJSONPatchOperations limits the operations of a JSON patch, as upstream. Each operation may
// move a whole list.
const MaxJSONPatchOperations = 10000

// ApplyJSONPatch applies a patch to a document. It refuses a patch that costs too much (TooMuch)
// before it starts. The library panics on some invalid operations, such as a test of the whole
// document without a value; ApplyJSONPatch returns an error then.
func ApplyJSONPatch(patch jsonpatch.Patch, doc []byte) (out []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, fmt.Errorf("the patch cannot be applied: %v", v)
		}
	}()
	if len(patch) > MaxJSONPatchOperations {
		return nil, fmt.Errorf("the allowed maximum operations in a JSON patch is %d, got %d", MaxJSONPatchOperations, len(patch))
	}
	if err := checkCost(patch, doc); err != nil {
		return nil, err
	}
	if err := copiesWithin(patch, doc, MaxJSONPatchCopies); err != nil {
		return nil, err
	}
	return patch.Apply(doc)
}

// TooMuch reports whether a patch was refused because applying it would cost too much.
func TooMuch(err error) bool {
	return errors.Is(err, bounds.ErrNested) || errors.Is(err, bounds.ErrMoves)
}

// checkCost returns an error for a patch that reads or makes values nested too deep for their size,
// or that moves elements of long lists too often.
func checkCost(patch jsonpatch.Patch, doc []byte) error {
	size, longest, copies := len(doc), 0, 0
	list, moves, grows := bounds.LongestList(doc), 0, 0
	depth, work := bounds.Levels(doc)
	var g growth
	for _, operation := range patch {
		for _, value := range operation {
			if value != nil {
				down, more := bounds.Levels(*value)
				size, depth, work = size+len(*value), max(depth, down), work+more
				list = max(list, bounds.LongestList(*value))
			}
		}
		path, err := operation.Path()
		if err != nil {
			continue // applying the patch reports the error
		}
		longest = max(longest, levels(path))
		kind := operation.Kind()
		if ofList(path) && (kind == "add" || kind == "remove" || kind == "copy" || kind == "move") {
			moves++
		}
		if kind == "add" || kind == "copy" || kind == "move" {
			grows++
		}
		if kind == "copy" {
			copies = MaxJSONPatchCopies
		}
		if from, err := operation.From(); err == nil && (kind == "copy" || kind == "move") {
			g.take(from, path)
			if kind == "move" && ofList(from) {
				moves++
			}
		}
	}
	if err := bounds.Moves(moves, list, grows); err != nil {
		return err
	}
	return bounds.Nested(work + int64(size+copies)*int64(longest+g.once+g.again) + int64(copies)*int64(depth))
}

// ofList reports whether a path may end with a list index. Appending ("-") moves no elements, so it
// does not count.
func ofList(path string) bool {
	last := path[strings.LastIndexByte(path, '/')+1:]
	return last != "" && last != "-" && isIndex(last)
}

// isIndex reports whether the library may take a path segment for an index: a number that
// strconv.Atoi accepts, or "-".
func isIndex(segment string) bool { return strings.Trim(segment, "0123456789+-") == "" }

func levels(path string) int { return strings.Count(path, "/") }

// growth bounds how much deeper copies and moves make a document. once is the most that a single
// operation adds. again is the sum over operations whose source an earlier operation may have made.
type growth struct {
	once, again int
	// Made are the targets of earlier operations; above are their parents.
	made, above map[string]bool
}

func (g *growth) take(from, path string) {
	deeper := max(0, levels(path)-levels(from))
	from, path = commonForm(from), commonForm(path)
	if g.mayBeMade(from) {
		g.again += deeper
	} else {
		g.once = max(g.once, deeper)
	}
	if g.made == nil {
		g.made, g.above = map[string]bool{}, map[string]bool{}
	}
	g.made[path] = true
	for end := range parents(path) {
		g.above[path[:end]] = true
	}
}

// commonForm returns the common form of all paths that may name the same value. Every index becomes
// "-", because an insertion changes the indexes of the elements behind it. Like the library, it
// accepts every index that strconv.Atoi accepts, takes a "~" that escapes nothing literally, and
// ignores the text before the first slash.
func commonForm(path string) string {
	// The last element may contain several segments, which are not compared.
	segments := strings.SplitN(unescaped.Replace(path), "/", knownLevels+2)
	for i, segment := range segments {
		if isIndex(segment) {
			segments[i] = "-"
		}
	}
	segments[0] = ""
	return strings.Join(segments, "/")
}

var unescaped = strings.NewReplacer("~0", "~0", "~1", "~1", "~", "~0")

func (g *growth) mayBeMade(from string) bool {
	if levels(from) >= knownLevels || g.made[from] || g.above[from] {
		return true
	}
	for end := range parents(from) {
		if g.made[from[:end]] {
			return true
		}
	}
	return false
}

// knownLevels limits the compared segments of paths. Deeper paths count as equal, because the
// comparison takes quadratic time in the number of segments.
const knownLevels = 100

// parents yields the length of each parent of a path, for at most knownLevels parents.
func parents(path string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, n := 0, 0; i < len(path); i++ {
			if path[i] == '/' {
				if n++; n > knownLevels || !yield(i) {
					return
				}
			}
		}
	}
}
