package api

import (
	"fmt"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
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

// ApplyJSONPatch applies a patch to a document. The library does not bear every broken operation (a test of the whole document without a
// value, for one): what it stumbles over is an error like any other.
func ApplyJSONPatch(patch jsonpatch.Patch, doc []byte) (out []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, fmt.Errorf("the patch can not be applied: %v", v)
		}
	}()
	return patch.Apply(doc)
}
