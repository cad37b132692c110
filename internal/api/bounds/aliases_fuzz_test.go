package bounds

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// FuzzAliases holds what aliases may stand for against what becomes of a document that is let pass: its JSON is hardly larger than the document and all that its
// aliases may stand for.
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
		// A byte is six of JSON at most, and what parts values from each other is another, with a null for nothing and quotes for a key.
		if err == nil && len(out) > 16*(MaxAliased+len(doc)) {
			t.Errorf("%d bytes of YAML that are let pass are %d of JSON", len(doc), len(out))
		}
	})
}

// doubled is a document of so many lists, each of which holds the one before twice.
func doubled(lists int) string {
	doc := "l0: &l0 [x, x]\n"
	for i := 1; i < lists; i++ {
		doc += fmt.Sprintf("l%d: &l%d [*l%d, *l%d]\n", i, i, i-1, i-1)
	}
	return doc
}
