package check_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/check"
)

const boats = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  names: {kind: Boat, plural: boats, singular: boat, listKind: BoatList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              seats: {type: integer, description: How many sit in it.}
              size: {x-kubernetes-int-or-string: true}
`

// Each schema accepts an object of its kind, and refuses misspelt fields and wrong types.
func TestSchemasValidateObjects(t *testing.T) {
	crds := filepath.Join(t.TempDir(), "boats.yaml")
	if err := os.WriteFile(crds, []byte(boats), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := check.Schemas(t.Context(), []string{crds})
	if err != nil {
		t.Fatal(err)
	}
	files, err := set.Files()
	if err != nil {
		t.Fatal(err)
	}
	compiler := compilerOf(t, files)
	for _, c := range []struct{ name, file, object, want string }{
		{"a Deployment", "deployment-apps-v1.json", "{apiVersion: apps/v1, kind: Deployment, metadata: {creationTimestamp: null, labels: {a: b}}, spec: {selector: {}, template: {spec: {containers: [{name: a, ports: [{containerPort: 80}], resources: {limits: {cpu: 1, memory: 1Gi}}}]}}}}", ""},
		{"a misspelt field", "deployment-apps-v1.json", "{apiVersion: apps/v1, kind: Deployment, spec: {replica: 1, selector: {}, template: {}}}", "spec: {[replica]}"},
		{"a wrong type", "deployment-apps-v1.json", "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: a, selector: {}, template: {}}}", "spec.replicas: {string [null integer]}"},
		{"another kind", "deployment-apps-v1.json", "{apiVersion: apps/v1, kind: DaemonSet}", "kind: {DaemonSet [Deployment]}"},
		{"a Service by its port's name", "service-v1.json", "{apiVersion: v1, kind: Service, spec: {ports: [{port: 80, targetPort: http}]}}", ""},
		{"an old version", "horizontalpodautoscaler-autoscaling-v1.json", "{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, spec: {maxReplicas: 1, scaleTargetRef: {kind: a, name: b}}}", ""},
		{"a definition", "customresourcedefinition-apiextensions-v1.json", boats, ""},
		{"a custom resource", "boat-example-v1.json", "{apiVersion: example.com/v1, kind: Boat, metadata: {name: a}, spec: {seats: 1, size: 2m}}", ""},
		{"a custom resource with a misspelt field", "boat-example-v1.json", "{apiVersion: example.com/v1, kind: Boat, spec: {seat: 1}}", "spec: {[seat]}"},
		{"any kind", "all.json", "{apiVersion: v1, kind: ConfigMap, data: {a: b}}", ""},
		{"any kind with a misspelt field", "all.json", "{apiVersion: v1, kind: ConfigMap, dta: {a: b}}", ": {[dta]}"},
		{"no kind", "all.json", "{apiVersion: v1}", ": {[kind]}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var object any
			if err := yaml.Unmarshal([]byte(c.object), &object); err != nil {
				t.Fatal(err)
			}
			got := problem(compiler.MustCompile(base + c.file).Validate(object))
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if text := string(files["boat-example-v1.json"]); !strings.Contains(text, "How many sit in it.") {
		t.Errorf("the description is missing: %s", text)
	}
}

// base is where the schemas of a test lie.
const base = "https://example.com/schemas/"

func compilerOf(t *testing.T, files map[string][]byte) *jsonschema.Compiler {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	for name, data := range files {
		schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err == nil {
			err = compiler.AddResource(base+name, schema)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return compiler
}

// problem returns the deepest error of a validation; "" if there is none.
func problem(err error) string {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return ""
	}
	for len(invalid.Causes) > 0 {
		invalid = invalid.Causes[0]
	}
	return fmt.Sprintf("%s: %s", strings.Join(invalid.InstanceLocation, "."), strings.TrimPrefix(fmt.Sprint(invalid.ErrorKind), "&"))
}

// Each example is valid by the schema of its kind and by that of all kinds, as editors load it.
func TestSchemasValidateExamples(t *testing.T) {
	set, err := check.Schemas(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := set.Files()
	if err != nil {
		t.Fatal(err)
	}
	all := compilerOf(t, files).MustCompile(base + "all.json")
	checked := 0
	for name, data := range check.Examples() {
		for text := range strings.SplitSeq(string(data), "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			if object == nil {
				continue
			}
			checked++
			if text := problem(all.Validate(object)); text != "" {
				t.Errorf("%s: %v: %s", name, object["kind"], text)
			}
			object["speck"] = true
			if problem(all.Validate(object)) == "" {
				t.Errorf("%s: %v: an unknown field is allowed", name, object["kind"])
			}
		}
	}
	if checked < 90 {
		t.Errorf("%d examples", checked)
	}
}
