package bounds

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// FuzzAliases checks that an accepted document's JSON is hardly larger than the document plus the
// limit for aliases.
func FuzzAliases(f *testing.F) {
	for _, doc := range []string{
		"a: &x 1\nb: *x\n", "&a [*a]", "a: &a {b: *a}", "*a", "a: &a b\nc: &a d\ne: *a\n", "- &x {<<: *x}\n", "b: &b {c: d}\na: {<<: [*b, *b]}\n",
		"a: &a " + strings.Repeat("x", 1000) + "\nb: [" + strings.TrimSuffix(strings.Repeat("*a,", 2500), ",") + "]\n",
		"a: &a " + strings.Repeat("x", 1000) + "\nb: [" + strings.TrimSuffix(strings.Repeat("*a,", 5000), ",") + "]\n",
		doubled(5), doubled(40), `{"a":"&x *x"}`, "k8s\x00&a *a", "\xff\xfe&\x00a\x00 \x00*\x00a\x00",
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if Aliases(doc) != nil {
			return
		}
		out, err := yaml.YAMLToJSON(doc)
		// One byte of YAML becomes six of JSON at most. Add a separator, a null for an empty value,
		// and quotes for a key.
		if err == nil && len(out) > 16*(MaxAliased+len(doc)) {
			t.Errorf("%d accepted bytes of YAML become %d of JSON", len(doc), len(out))
		}
	})
}

// doubled makes a document of nested lists. Each list contains the previous list twice.
func doubled(lists int) string {
	doc := "l0: &l0 [x, x]\n"
	for i := 1; i < lists; i++ {
		doc += fmt.Sprintf("l%d: &l%d [*l%d, *l%d]\n", i, i, i-1, i-1)
	}
	return doc
}
