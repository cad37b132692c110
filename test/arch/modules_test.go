package arch

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// apart lists the modules of which a harness needs another version than the product, with the
// reason. test/upstream, test/field and test/critest are excluded: they have the versions of
// upstream's and of an operator's releases.
var apart = map[string]string{
	"github.com/containerd/ttrpc":                 "a module of conformance requires a newer one",
	"github.com/container-storage-interface/spec": "csi-test requires a newer one",
	"github.com/cyphar/filepath-securejoin":       "modules of the harnesses require a newer one",
	"github.com/go-errors/errors":                 "Helm requires a newer one",
	"github.com/godbus/dbus/v5":                   "a module of conformance requires a newer one",
}

// harnesses lists the modules beside the product's.
var harnesses = []string{
	"test/compare", "test/conformance", "test/conformance/coredns", "test/csi", "test/envtest", "test/integration",
	"test/interop", "test/operators", "test/scheduler", "test/ui", "examples/operator-test",
}

// With other versions of a few libraries, nearly all Kubernetes libraries are compiled again for
// each harness. That takes minutes with an empty cache.
func TestHarnessesShareTheProductsModules(t *testing.T) {
	product := required(t, "../../go.mod")
	for _, harness := range harnesses {
		for path, version := range required(t, "../../"+harness+"/go.mod") {
			if want := product[path]; want != "" && want != version && apart[path] == "" {
				t.Errorf("%s/go.mod requires %s %s, the product %s: "+
					"go get %s@%s there, or list it in apart with the reason",
					harness, path, version, want, path, want)
			}
		}
	}
}

var (
	replacement = regexp.MustCompile(`(?m)^(?:replace )?\s*([a-z][^\s]*\.[^\s]+) => [a-z][^\s]* (v[^\s]+)`)
	requirement = regexp.MustCompile(`(?m)^(?:require )?\s*([a-z][^\s]*\.[^\s]+) (v[^\s]+)`)
)

// required returns the modules that a go.mod requires, with the versions that replace them.
func required(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	requirements, _, _ := strings.Cut(string(text), "replace ")
	for _, m := range requirement.FindAllStringSubmatch(requirements, -1) {
		found[m[1]] = m[2]
	}
	for _, m := range replacement.FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = m[2]
	}
	return found
}
