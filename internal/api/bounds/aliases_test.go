package bounds

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
)

// in16 encodes a text in UTF-16, which YAML allows.
func in16(text string) string {
	out := []byte("\xff\xfe")
	for _, unit := range utf16.Encode([]rune(text)) {
		out = append(out, byte(unit), byte(unit>>8))
	}
	return string(out)
}

func TestAliasesAreLimitedByTheirExpandedSize(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	nested := "a0: &a0 [x]\n"
	for i := range 30 {
		nested += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	const excessive = "yaml: document contains excessive aliasing"
	for name, c := range map[string]struct{ doc, refused string }{
		"two aliases of a megabyte":                  {"a: &a " + long + "\nb: [*a, *a]", ""},
		"three aliases of a megabyte":                {"a: &a " + long + "\nb: [*a, *a, *a]", excessive},
		"a hundred thousand aliases of a long text":  {"a: &a " + long + "\nb: [" + strings.Repeat("*a,", 100_000) + "]", excessive},
		"a hundred thousand aliases of a short text": {"a: &a x\nb: [" + strings.Repeat("*a,", 100_000) + "]", ""},
		"aliases of a quoted text":                   {"a: &a \"" + long + "\"\nb: [" + strings.Repeat("*a,", 4) + "]", excessive},
		"aliases as keys":                            {"? &a " + long + "\n: [*a, *a, *a, *a]", excessive},
		"merged aliases":                             {"a: &a {b: " + long + "}\nb: [{<<: *a}, {<<: *a}, {<<: *a}, {<<: *a}]", excessive},
		"many aliases of aliases":                    {nested, excessive},
		"few aliases of aliases":                     {"a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", ""},
		"a reused anchor name":                       {"a: &a x\nb: &a " + long + "\nc: [*a, *a, *a, *a]", excessive},
		"an anchor that contains itself":             {"a: &a [*a, *a]", ""},
		"a long document without aliases":            {"a: &a x\nb: *a\nc: [" + strings.Repeat(long+",", 4) + "]", ""},
		"no aliases":                                 {"verbs: [\"*\"]\nrule: self.a && self.b * 2", ""},
		"text that looks like aliases":               {"a: x&y *z " + long + long + long + long, ""},
		"UTF-16":                                     {in16("a: &a " + strings.Repeat("x", 4096) + "\nb: [" + strings.Repeat("*a,", 2000) + "]"), excessive},
		"invalid YAML":                               {"a: &a [\nb: *a", "yaml: "},
		"an unknown anchor":                          {"a: &a x\nb: *b", "yaml: unknown anchor 'b' referenced"},
		"JSON":                                       {`{"a":"\ud83d\ude00 &a *a"}`, ""},
		"protobuf":                                   {"k8s\x00\n&a *a", ""},
		"nothing":                                    {"", ""},
	} {
		err := Aliases([]byte(c.doc))
		if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.HasPrefix(err.Error(), c.refused)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
