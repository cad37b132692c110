package api

import (
	"fmt"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/knarr-project/knarr/internal/api/bounds"
)

// MaxJSONPatchCopies is how many bytes the copy operations of one JSON patch may add, as upstream: each could double the document.
const MaxJSONPatchCopies = 3 * 1024 * 1024

// boundCopies sets the limit in the only place that the library has for it.
var boundCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = MaxJSONPatchCopies })

// DecodeJSONPatch reads an RFC 6902 patch, whoever sends it. What it copies when it is applied is bounded.
func DecodeJSONPatch(data []byte) (jsonpatch.Patch, error) {
	boundCopies()
	return jsonpatch.DecodePatch(data)
}

// MaxJSONPatchOperations is how many operations a JSON patch may have, as upstream: each may move a whole list.
const MaxJSONPatchOperations = 10000

// ApplyJSONPatch applies a patch to a document. One that would take too much (bounds.ErrNested) is not begun with. The library does not bear every broken operation (a test of the whole document without a
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
	return patch.Apply(doc)
}

// worth tells of a patch that reads or makes what is nested too deep for its size.
func worth(patch jsonpatch.Patch, doc []byte) error {
	size, longest, moved, copies := len(doc), 0, 0, 0
	depth, work := bounds.Levels(doc)
	for _, operation := range patch {
		for _, value := range operation {
			if value != nil {
				down, more := bounds.Levels(*value)
				size, depth, work = size+len(*value), max(depth, down), work+more
			}
		}
		path, err := operation.Path()
		if err != nil {
			continue // found by whoever applies it
		}
		levels := strings.Count(path, "/")
		longest = max(longest, levels)
		switch operation.Kind() {
		case "copy":
			copies = MaxJSONPatchCopies
			moved += levels // what was moved may be moved on, with what it is in
		case "move":
			moved += levels
		}
	}
	return bounds.Nested(work + int64(size+copies)*int64(longest+moved) + int64(copies)*int64(depth))
}
