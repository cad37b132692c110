package api

import (
	"fmt"
	"strings"
	"testing"
)

func TestCostlyOrInvalidJSONPatchesAreRefused(t *testing.T) {
	var double []string
	for i := range 40 {
		double = append(double, fmt.Sprintf(`{"op":"copy","from":"/a","path":"/a/b%d"}`, i))
	}
	for name, test := range map[string]struct{ patch, err string }{
		"copies that double the document":              {"[" + strings.Join(double, ",") + "]", "accumulated size"},
		"a test of the whole document without a value": {`[{"op":"test","path":""}]`, "cannot be applied"},
		"an index far beyond the end":                  {`[{"op":"add","path":"/l/1000000000","value":1}]`, "invalid index"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := DecodeJSONPatch([]byte(test.patch))
			if err != nil {
				t.Fatal(err)
			}
			_, err = ApplyJSONPatch(p, []byte(`{"a":{"text":"0123456789"},"l":[]}`))
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("the error is %v, want one with %q", err, test.err)
			}
		})
	}
}

// The library copies a list for each inserted or removed element: 10,000 operations on a list of
// 700,000 elements would occupy a core for minutes.
func TestMovesOfLongListsAreLimited(t *testing.T) {
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("0,", n), ",") + "]" }
	for name, c := range map[string]struct {
		operation string
		elements  int
		fits      bool
	}{
		"inserts into a long list":          {`{"op":"add","path":"/l/0","value":1}`, 700_000, false},
		"inserts into a short list":         {`{"op":"add","path":"/l/0","value":1}`, 1_000, true},
		"appends to a long list":            {`{"op":"add","path":"/l/-","value":1}`, 700_000, true},
		"removes from a long list":          {`{"op":"remove","path":"/l/+0"}`, 700_000, false},
		"copies into a long list":           {`{"op":"copy","from":"/a","path":"/l/-1"}`, 700_000, false},
		"moves within a long list":          {`{"op":"move","from":"/l/5","path":"/l/0"}`, 700_000, false},
		"moves out of a long list":          {`{"op":"move","from":"/l/5","path":"/a"}`, 700_000, false},
		"replaces within a long list":       {`{"op":"replace","path":"/l/0","value":1}`, 700_000, true},
		"sets a key next to a long list":    {`{"op":"add","path":"/k","value":1}`, 700_000, true},
		"sets a numeric key next to a list": {`{"op":"add","path":"/7","value":1}`, 5_000, true},
	} {
		for where, doc := range map[string]string{"the object's": `{"a":1,"l":` + list(c.elements) + `}`, "the patch's": `{"a":1,"l":[]}`} {
			operations := strings.Repeat(c.operation+",", 1000)
			if where == "the patch's" {
				operations = `{"op":"add","path":"/l","value":` + list(c.elements) + `},` + operations
			}
			p, err := DecodeJSONPatch([]byte("[" + strings.TrimSuffix(operations, ",") + "]"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = ApplyJSONPatch(p, []byte(doc)); TooMuch(err) == c.fits || c.fits && err != nil {
				t.Errorf("a patch that %s, %s: %v", name, where, err)
			}
		}
	}
}

// The length of the lists counts, not the number of operations.
func TestTheMaximumNumberOfOperationsIsAccepted(t *testing.T) {
	doc := []byte(`{"l":[` + strings.TrimSuffix(strings.Repeat("0,", 1000), ",") + `]}`)
	for _, operation := range []string{`{"op":"add","path":"/l/0","value":1}`, `{"op":"move","from":"/l/0","path":"/l/5"}`} {
		p, err := DecodeJSONPatch([]byte("[" + strings.TrimSuffix(strings.Repeat(operation+",", MaxJSONPatchOperations), ",") + "]"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ApplyJSONPatch(p, doc); err != nil {
			t.Errorf("%s: %v", operation, err)
		}
	}
}

// Only a source that an earlier operation may have made adds to the levels of a patch.
func TestSourcesMadeEarlierAreFoundInEveryForm(t *testing.T) {
	deep := strings.Repeat("/a", knownLevels-1)
	for _, c := range []struct {
		path, from string
		taken      bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/a", "/a/b", true},
		{"/a", "/b", false}, {"/a", "/ab", false}, {"/a/copy-1", "/a/copy-2", false}, {"/L/0/b", "/L/1/c", false},
		{"/L/0/b", "/L/1", true}, {"/L/0/b", "/L/1/b/c", true}, {"/L/-", "/L/7", true}, {"/L/0/b/3", "/L/-1/b/0/c", true},
		{"/L/0", "/L/00", true}, {"/L/0/b", "/L/+0", true}, {"/0/b", "/1", true},
		{"/a~/b", "/a~0", true}, {"/a~0/b", "/a~", true}, {"/a~~1/b", "/a~0~1", true}, {"/a~1b/c", "/a/b", false}, {"/a~01/b", "/a~1", false},
		{"/a/b", "x/a", true}, {"x/a/b", "/a", true},
		{deep + "/a", deep, true}, {deep + "/b/c", deep + "/b", true}, {deep + "/b/c/d", deep + "/b/c", true}, {deep, deep + "/b", true}, {deep[2:] + "/b", deep[2:] + "/c", false},
	} {
		var g growth
		g.take("/elsewhere", c.path)
		g.take(c.from, strings.Repeat("/x", 1000))
		if taken := g.again > 0; taken != c.taken {
			t.Errorf("after %s was made, the source %s counts as made: %v", c.path, c.from, taken)
		}
	}
}
