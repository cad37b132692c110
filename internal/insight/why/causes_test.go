package why

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// constantCauses returns the values of the constants cause… of the package.
func constantCauses(t *testing.T) (out []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "cause") {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				value, _ := strconv.Unquote(literal.Value)
				out = append(out, value)
			}
			return true
		})
	}
	return out
}

func TestEachCauseIsListedOnceWithARemedy(t *testing.T) {
	listed := map[string]bool{}
	for _, area := range Areas() {
		for _, c := range area.Causes {
			if listed[c.Name] || c.Means == "" || c.Remedy == "" {
				t.Errorf("%+v is listed twice or incompletely", c)
			}
			listed[c.Name] = true
			for _, text := range []string{c.Means, c.Remedy} {
				if words := len(strings.Fields(text)); words > 15 {
					t.Errorf("%s: %d words in %q, at most 15", c.Name, words, text)
				}
			}
		}
	}
	constants := constantCauses(t)
	for _, cause := range constants {
		if cause != causeAbsent && !listed[cause] {
			t.Errorf("%s is not listed", cause)
		}
	}
	for name := range listed {
		if !slices.Contains(constants, name) {
			t.Errorf("%s is listed, and no rule has it", name)
		}
	}
}
