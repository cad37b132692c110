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
