package api

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/knarr-project/knarr/internal/api/bounds"
)

// MaxJSONPatchCopies is how many bytes the copy operations of one JSON patch may add, as upstream: each could double the document.
const MaxJSONPatchCopies = 3 * 1024 * 1024

// DecodeJSONPatch decodes an RFC 6902 patch. ApplyJSONPatch applies it within bounds.
func DecodeJSONPatch(data []byte) (jsonpatch.Patch, error) { return jsonpatch.DecodePatch(data) }

// MaxJSONPatchOperations is how many operations a JSON patch may have, as upstream: each may move a whole list.
const MaxJSONPatchOperations = 10000

// ApplyJSONPatch applies a patch to a document. One that would take too much (TooMuch) is not begun with. The library does not bear every broken operation (a test of the whole document without a
// value, for one): what it stumbles over is an error like any other.
func ApplyJSONPatch(patch jsonpatch.Patch, doc []byte) (out []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, fmt.Errorf("the patch can not be applied: %v", v)
		}
	}()
	if len(patch) > MaxJSONPatchOperations {
		return nil, fmt.Errorf("the allowed maximum operations in a JSON patch is %d, got %d", MaxJSONPatchOperations, len(patch))
	}
	if err := worth(patch, doc); err != nil {
		return nil, err
	}
	if err := copiesWithin(patch, doc, MaxJSONPatchCopies); err != nil {
		return nil, err
	}
	return patch.Apply(doc)
}

// TooMuch tells whether a patch was refused for what it would take to apply it.
func TooMuch(err error) bool {
	return errors.Is(err, bounds.ErrNested) || errors.Is(err, bounds.ErrMoves)
}

// worth tells of a patch that reads or makes what is nested too deep for its size, or moves the elements of long lists too often.
func worth(patch jsonpatch.Patch, doc []byte) error {
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
			continue // found by whoever applies it
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

// ofList tells whether a path may end with an index of a list. The library does not move anything for what is put behind the last ("-").
func ofList(path string) bool {
	last := path[strings.LastIndexByte(path, '/')+1:]
	return last != "" && last != "-" && isIndex(last)
}

// isIndex tells whether the library may take a segment of a path for an index: what strconv.Atoi does, or what is behind the last.
func isIndex(segment string) bool { return strings.Trim(segment, "0123456789+-") == "" }

func levels(path string) int { return strings.Count(path, "/") }

// growth is how much deeper copies and moves make a document: by the most that one of them does, and by each that takes on what others may have made.
type growth struct {
	once, again int
	made, above map[string]bool // the places where something was put; what those are within
}

func (g *growth) take(from, path string) {
	deeper := max(0, levels(path)-levels(from))
	from, path = place(from), place(path)
	if g.taken(from) {
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

// place is a path as all that may lead to the same are written. What is an index anywhere in it stands for each of its list's elements, since they change
// places when one is put before them. The library takes what strconv.Atoi does for an index, a ~ that escapes nothing for itself, and ignores what is before
// the first slash.
func place(path string) string {
	segments := strings.SplitN(unescaped.Replace(path), "/", knownLevels+2) // the last may be several that are not looked at
	for i, segment := range segments {
		if isIndex(segment) {
			segments[i] = "-"
		}
	}
	segments[0] = ""
	return strings.Join(segments, "/")
}

var unescaped = strings.NewReplacer("~0", "~0", "~1", "~1", "~", "~0")

func (g *growth) taken(from string) bool {
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

// knownLevels is from how many levels on paths are not told from others, which takes the square of it.
const knownLevels = 100

// parents are the ends of what a path is within, of fewer levels than knownLevels.
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
