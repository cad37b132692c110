package api

import (
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// applied returns the error text of a patch, or "panic" if the library panics.
func applied(apply func() error) (end string) {
	defer func() {
		if v := recover(); v != nil {
			end = "panic"
		}
	}()
	if err := apply(); err != nil {
		return err.Error()
	}
	return ""
}

// sameResult compares copiesWithin with the library's own limit, which only this test sets.
func sameResult(t *testing.T, doc, operations string, limit int64) {
	t.Helper()
	patch, err := DecodeJSONPatch([]byte(operations))
	if err != nil {
		return
	}
	want := applied(func() error {
		jsonpatch.AccumulatedCopySizeLimit = limit
		defer func() { jsonpatch.AccumulatedCopySizeLimit = 0 }()
		_, err := patch.Apply([]byte(doc))
		return err
	})
	got := applied(func() error {
		if err := copiesWithin(patch, []byte(doc), limit); err != nil {
			return err
		}
		_, err := patch.Apply([]byte(doc))
		return err
	})
	if got != want {
		t.Errorf("%s on %s within %d: %q, want %q", operations, doc, limit, got, want)
	}
}

var copyPatches = []string{
	`[{"op":"copy","from":"/a","path":"/a/b"},{"op":"copy","from":"/a","path":"/a/c"},{"op":"copy","from":"/a","path":"/a/d"}]`,
	`[{"op":"copy","from":"/l/0","path":"/l/-"},{"op":"copy","from":"/l/-1","path":"/l/0"},{"op":"copy","from":"/l","path":"/l/1"}]`,
	`[{"op":"copy","from":"/l/0","path":"/l/9"}]`,
	`[{"op":"copy","from":"/l","path":"/none/9"}]`,
	`[{"op":"add","path":"/x","value":{"k":1,"k":"<&>","k":2}},{"op":"copy","from":"/x","path":"/y"},{"op":"add","path":"/x/z","value":null},{"op":"copy","from":"/x","path":"/y"}]`,
	`[{"op":"add","path":"/x","value":{"k":1,"k":[2]}},{"op":"test","path":"/x","value":{"k":[2]}},{"op":"copy","from":"/x","path":"/y"}]`,
	`[{"op":"add","path":"/n","value":null},{"op":"copy","from":"/n","path":"/m"},{"op":"copy","from":"/m","path":"/o"},{"op":"copy","from":"/m/k","path":"/p"},{"op":"add","path":"/m/k","value":1}]`,
	`[{"op":"move","from":"/a","path":"/l/0"},{"op":"copy","from":"/l/0","path":"/a"},{"op":"remove","path":"/l/1"},{"op":"replace","path":"/l/0","value":[[]]},{"op":"copy","from":"/l","path":"/b"}]`,
	`[{"op":"copy","from":"/missing","path":"/b"},{"op":"copy","from":"/a","path":""}]`,
	`[{"op":"replace","path":"","value":["a",{"b":1}]},{"op":"copy","from":"/1","path":"/0"}]`,
	`[{"op":"test","path":"/a/text","value":"0"},{"op":"copy","from":"/a","path":"/b"}]`,
	`[{"op":"add","path":"/a~1b","value":"~"},{"op":"copy","from":"/a~1b","path":"/c~0"},{"op":"move","from":"/c~","path":"/d"},{"op":"copy","from":"/d","path":"/e"}]`,
	`[{"op":"copy","path":"/b"},{"op":"copy","from":"/a"},{"op":"nothing","path":"/x"}]`,
}

const copyDocument = `{"a":{"text":"0123456789<"},"l":[1,"two",null,{"k":null}],"a~":{}}`

func TestCopiesAreCountedAsTheLibraryCountsThem(t *testing.T) {
	for _, operations := range copyPatches {
		for _, limit := range []int64{1, 5, 12, 24, 60, 80, 200, 10000} {
			sameResult(t, copyDocument, operations, limit)
		}
	}
}

func FuzzCopies(f *testing.F) {
	for i, operations := range copyPatches {
		f.Add(copyDocument, operations, uint8(10*i))
	}
	f.Fuzz(func(t *testing.T, doc, operations string, limit uint8) {
		sameResult(t, doc, operations, int64(limit)+1)
	})
}

func TestAppliedPatchesLeaveTheLibrarysLimitAlone(t *testing.T) {
	p, err := DecodeJSONPatch([]byte(`[{"op":"copy","from":"/a","path":"/b"}]`))
	if err != nil {
		t.Fatal(err)
	}
	out, err := ApplyJSONPatch(p, []byte(`{"a":1}`))
	if err != nil || jsonpatch.AccumulatedCopySizeLimit != 0 {
		t.Errorf("%s, %v, limit %d", out, err, jsonpatch.AccumulatedCopySizeLimit)
	}
}
