package api

import (
	"fmt"
	"strings"
	"testing"
)

func TestAJSONPatchCanNotBlowUp(t *testing.T) {
	var double []string
	for i := range 40 {
		double = append(double, fmt.Sprintf(`{"op":"copy","from":"/a","path":"/a/b%d"}`, i))
	}
	for name, test := range map[string]struct{ patch, err string }{
		"copies that double the document":  {"[" + strings.Join(double, ",") + "]", "accumulated size"},
		"a test of everything for nothing": {`[{"op":"test","path":""}]`, "can not be applied"},
		"an index far behind the end":      {`[{"op":"add","path":"/l/1000000000","value":1}]`, "invalid index"},
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

// What is not told to be taken from where something was put is not added to the levels that a patch may make.
func TestAPatchTakesWhatItHasMadeHoweverItsPathIsWritten(t *testing.T) {
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
			t.Errorf("with %s made, %s is said to be of it: %v", c.path, c.from, taken)
		}
	}
}
