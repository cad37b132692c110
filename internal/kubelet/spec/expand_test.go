package spec

import "testing"

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "a", "EMPTY": "", "REF": "$(A)"}
	for name, c := range map[string]struct{ in, want string }{
		"known variables are replaced":               {"x-$(A)-$(A)", "x-a-a"},
		"unknown variables stay":                     {"$(NOPE)", "$(NOPE)"},
		"an empty value is a value":                  {"[$(EMPTY)]", "[]"},
		"a doubled dollar sign escapes":              {"$$(A)", "$(A)"},
		"three dollar signs are one and a reference": {"$$$(A)", "$a"},
		"an open parenthesis stays":                  {"$(A", "$(A"},
		"a lone dollar sign stays":                   {"a$", "a$"},
		"other characters after a dollar stay":       {"$A $[A]", "$A $[A]"},
		"values are not expanded again":              {"$(REF)", "$(A)"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Expand(c.in, func(n string) (string, bool) { v, ok := vars[n]; return v, ok })
			if got != c.want {
				t.Errorf("Expand(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}
