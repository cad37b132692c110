package calm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/insight/relations"
)

// harbour reads the declared architecture of the sample.
func harbour(t testing.TB) (o *relations.Objects) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "harbour", "architecture.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o = &relations.Objects{}
	for _, doc := range strings.Split(string(data), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		switch u.GetKind() {
		case "System":
			s := &architecture.System{}
			err = architecture.From(u, s)
			o.Systems = append(o.Systems, s)
		case "Component":
			c := &architecture.Component{}
			err = architecture.From(u, c)
			o.Components = append(o.Components, c)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func exported(t testing.TB, o *relations.Objects) []byte {
	t.Helper()
	d, err := Export(relations.Derive(o))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestAnExportIsADocumentOfRelease11(t *testing.T) {
	raw := exported(t, harbour(t))
	for _, problem := range problems(raw) {
		t.Error(problem)
	}
	for _, part := range []string{
		`"$schema": "https://calm.finos.org/release/1.1/meta/calm.json"`, `"unique-id": "harbour.web:http"`, `"node-type": "actor"`, `"composed-of"`, `"interacts"`, `"connects"`,
	} {
		if !strings.Contains(string(raw), part) {
			t.Errorf("%s is missing in\n%s", part, raw)
		}
	}
	if got := problems([]byte(`{"nodes":[{"unique-id":"a"}],"relationships":[{"unique-id":"r","relationship-type":{"connects":{"source":{"node":"x"}}}}]}`)); len(got) < 4 {
		t.Errorf("the test's own check finds only %q", got)
	}
}

func TestAnImportOfAnExportDeclaresTheSame(t *testing.T) {
	before := harbour(t)
	before.Systems[0].Spec.Network = architecture.NetworkEnforce
	got, err := Import(bytes.NewReader(exported(t, before)), "default")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Notes) > 0 {
		t.Errorf("notes: %q", got.Notes)
	}
	if len(got.Components) != 3 || len(got.Systems) != 1 || !reflect.DeepEqual(got.Systems[0].Spec, before.Systems[0].Spec) {
		t.Fatalf("%+v\n%+v", got.Systems[0].Spec, before.Systems[0].Spec)
	}
	for _, want := range before.Components {
		i := slices.IndexFunc(got.Components, func(c *architecture.Component) bool { return c.Reference() == want.Reference() })
		if i < 0 {
			t.Errorf("%s is missing", want.Reference())
			continue
		}
		spec := want.Spec
		for n := range spec.Offers {
			spec.Offers[n].Protocol = "TCP" // the default, which the document says
		}
		if !reflect.DeepEqual(got.Components[i].Spec, spec) {
			t.Errorf("%s:\n%+v\nwant\n%+v", want.Name, got.Components[i].Spec, spec)
		}
	}
}

const foreign = `{
  "$schema": "https://calm.finos.org/release/1.0/meta/calm.json",
  "nodes": [
    {"unique-id": "trader", "node-type": "actor", "name": "Trader", "description": "A person"},
    {"unique-id": "Web_UI", "node-type": "webclient", "name": "Web", "description": "x", "interfaces": [{"unique-id": "web-https", "port": 8443, "host": "[[HOST]]"}]},
    {"unique-id": "orders", "node-type": "service", "name": "Orders", "description": "x", "interfaces": [{"unique-id": "orders-api", "definition-url": "https://x/host-port", "config": {"port": "9000"}}, {"unique-id": "topic"}],
     "controls": {"security": {"description": "d", "requirements": [{"requirement-url": "https://x", "config-url": "https://y"}]}}},
    {"unique-id": "ledger", "node-type": "database", "name": "Ledger", "description": "x", "interfaces": [{"unique-id": "sql", "port": 5432}]},
    {"unique-id": "exchange", "node-type": "ecosystem", "name": "Exchange", "description": "x", "interfaces": [{"unique-id": "fix", "host": "fix.example", "port": 9878}]},
    {"unique-id": "platform", "node-type": "system", "name": "Platform", "description": "x", "metadata": [{"owner": "x"}]}
  ],
  "relationships": [
    {"unique-id": "1", "relationship-type": {"interacts": {"actor": "trader", "nodes": ["Web_UI"]}}},
    {"unique-id": "2", "protocol": "HTTPS", "relationship-type": {"connects": {"source": {"node": "Web_UI"}, "destination": {"node": "orders", "interfaces": ["orders-api"]}}}},
    {"unique-id": "3", "relationship-type": {"connects": {"source": {"node": "orders"}, "destination": {"node": "ledger"}}}},
    {"unique-id": "4", "relationship-type": {"connects": {"source": {"node": "orders"}, "destination": {"node": "exchange"}}}},
    {"unique-id": "5", "relationship-type": {"deployed-in": {"container": "platform", "nodes": ["Web_UI", "orders", "ledger"]}}}
  ]
}`

func TestADocumentOfOthersBecomesDeclarations(t *testing.T) {
	got, err := Import(strings.NewReader(foreign), "trading")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := got.YAML(&b); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "foreign.yaml"))
	if err != nil || b.String() != string(want) {
		t.Errorf("%v; got\n%s", err, b.String())
	}
	notes := strings.Join(got.Notes, "\n")
	for _, part := range []string{`the interface "topic" has no port`, "nodes[2].controls.security", "the selector is app.kubernetes.io/name=ledger"} {
		if !strings.Contains(notes, part) {
			t.Errorf("%q is missing in the notes\n%s", part, notes)
		}
	}
}

func TestErrorsNameTheFieldAndWhatIsAllowed(t *testing.T) {
	node := func(fields string) string {
		return `{"nodes":[{"unique-id":"a","node-type":"service","name":"a","description":""` + fields + `}],"relationships":[]}`
	}
	relation := func(kind string) string {
		return strings.Replace(node(""), `[]}`, `[{"unique-id":"r","relationship-type":{`+kind+`}}]}`, 1)
	}
	for document, want := range map[string]string{
		"{\n  \"nodes\": [,\n": "line 2: ", "[]": "line 1: ", `{"nodes": 3}`: "nodes: found a number", "{}": "nodes: the document has none",
		`{"nodes":[{"unique-id":"a","name":"a"}]}`:                                           "nodes[0].node-type: the field is missing",
		node(`,"interfaces":[{"unique-id":"i","port":70000}]`):                               "nodes[0].interfaces[0].port: found 70000; a number from 1 to 65535",
		node(`,"interfaces":[{"unique-id":"i","port":true}]`):                                "nodes[0].interfaces[0].port: found true",
		node(`,"metadata":{"kubernetes":{"kind":"Pod","name":"a"}}`):                         `nodes[0].metadata.kubernetes.kind: found "Pod"; allowed are Component and System`,
		node(`,"metadata":{"kubernetes":{"kind":"Component","name":"a","namespace":"A B"}}`): `"A B" is no name of a namespace`,
		relation(``): "relationships[0].relationship-type: 0 types are given; exactly one of",
		relation(`"connects":{"source":{"node":"a"},"destination":{"node":"b"}}`):                                   `relationships[0].relationship-type.connects.destination.node: no node has the unique-id "b"`,
		relation(`"interacts":{"actor":"a","nodes":[]}`):                                                            "relationships[0].relationship-type.interacts.nodes: the list is missing or empty",
		relation(`"options":[],"composed-of":{"container":"a","nodes":["a"]}`):                                      "2 types are given",
		`{"nodes":[{"unique-id":"a","node-type":"x","name":"a"},{"unique-id":"a","node-type":"x","name":"a"}]}`:     `nodes[1].unique-id: "a" is that of nodes[0] too`,
		`{"nodes":[{"unique-id":"a b","node-type":"x","name":"a"},{"unique-id":"a-b","node-type":"x","name":"a"}]}`: `gives the Component the name a-b, as "a b" does`,
		`{"nodes":[{"unique-id":"!!","node-type":"x","name":"a"}]}`:                                                 `nodes[0].unique-id: "!!" cannot be the name of an object`,
		`{"nodes":["` + strings.Repeat("x", maxBytes) + `"]}`:                                                       "more than 4194304 bytes",
	} {
		if _, err := Import(strings.NewReader(document), "default"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s:\n%v\nwant %s", document, err, want)
		}
	}
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(foreign))
	f.Add(exported(f, harbour(f)))
	f.Fuzz(func(t *testing.T, document []byte) {
		got, err := Import(bytes.NewReader(document), "default")
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := got.YAML(&b); err != nil {
			t.Fatal(err)
		}
		o := &relations.Objects{Components: got.Components, Systems: got.Systems}
		for _, problem := range problems(exported(t, o)) {
			t.Error(problem)
		}
	})
}

// problems compares a document with what the schema of release 1.1 requires of the parts that this
// package writes.
func problems(raw []byte) (all []string) {
	var d map[string]any
	if err := json.Unmarshal(raw, &d); err != nil {
		return []string{err.Error()}
	}
	wrong := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	text := func(at string, o map[string]any, fields ...string) {
		for _, field := range fields {
			if _, ok := o[field].(string); !ok {
				wrong("%s.%s: %v is no text", at, field, o[field])
			}
		}
	}
	ids := map[string]bool{}
	list := func(at string, v any) (out []map[string]any) {
		items, ok := v.([]any)
		if v != nil && !ok {
			wrong("%s is no list", at)
		}
		for i, item := range items {
			o, ok := item.(map[string]any)
			if !ok {
				wrong("%s[%d] is no object", at, i)
			}
			out = append(out, o)
		}
		return out
	}
	for i, n := range list("nodes", d["nodes"]) {
		at := fmt.Sprintf("nodes[%d]", i)
		text(at, n, "unique-id", "node-type", "name", "description")
		id, _ := n["unique-id"].(string)
		if ids[id] {
			wrong("%s: %q exists twice", at, id)
		}
		ids[id] = true
		for k, in := range list(at+".interfaces", n["interfaces"]) {
			text(fmt.Sprintf("%s.interfaces[%d]", at, k), in, "unique-id")
		}
		controls, _ := n["controls"].(map[string]any)
		for name, c := range controls {
			control, _ := c.(map[string]any)
			text(at+".controls."+name, control, "description")
			for k, r := range list(at+".controls."+name, control["requirements"]) {
				text(fmt.Sprintf("%s.controls.%s[%d]", at, name, k), r, "requirement-url")
				if (r["config"] == nil) == (r["config-url"] == nil) {
					wrong("%s.controls.%s[%d] needs one of config and config-url", at, name, k)
				}
			}
		}
	}
	refer := func(at string, id any) {
		if text, _ := id.(string); !ids[text] {
			wrong("%s: no node %v", at, id)
		}
	}
	for i, r := range list("relationships", d["relationships"]) {
		at := fmt.Sprintf("relationships[%d]", i)
		text(at, r, "unique-id")
		types, _ := r["relationship-type"].(map[string]any)
		if len(types) != 1 {
			wrong("%s has %d types", at, len(types))
		}
		for name, v := range types {
			o, _ := v.(map[string]any)
			if name == "connects" {
				for _, end := range []string{"source", "destination"} {
					n, _ := o[end].(map[string]any)
					refer(at+"."+end, n["node"])
				}
				continue
			}
			first := map[string]string{"interacts": "actor", "composed-of": "container", "deployed-in": "container"}[name]
			refer(at+"."+first, o[first])
			nodes, _ := o["nodes"].([]any)
			if len(nodes) == 0 {
				wrong("%s.nodes is empty", at)
			}
			for _, n := range nodes {
				refer(at+".nodes", n)
			}
		}
	}
	return all
}
