package check_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	schemas := map[string]any{}
	for name, data := range files {
		var s any
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		schemas[name] = s
	}
	for _, c := range []struct{ name, file, object, want string }{
		{"a Deployment", "deployment-apps-v1.json", "{apiVersion: apps/v1, kind: Deployment, metadata: {creationTimestamp: null, labels: {a: b}}, spec: {selector: {}, template: {spec: {containers: [{name: a, ports: [{containerPort: 80}], resources: {limits: {cpu: 1, memory: 1Gi}}}]}}}}", ""},
		{"a misspelt field", "deployment-apps-v1.json", "{apiVersion: apps/v1, kind: Deployment, spec: {replica: 1, selector: {}, template: {}}}", "spec.replica: not allowed"},
		{"a wrong type", "deployment-apps-v1.json", "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: a, selector: {}, template: {}}}", "spec.replicas: string"},
		{"another kind", "deployment-apps-v1.json", "{apiVersion: apps/v1, kind: DaemonSet}", "kind: enum"},
		{"a Service by its port's name", "service-v1.json", "{apiVersion: v1, kind: Service, spec: {ports: [{port: 80, targetPort: http}]}}", ""},
		{"an old version", "horizontalpodautoscaler-autoscaling-v1.json", "{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, spec: {maxReplicas: 1, scaleTargetRef: {kind: a, name: b}}}", ""},
		{"a definition", "customresourcedefinition-apiextensions-v1.json", boats, ""},
		{"a custom resource", "boat-example-v1.json", "{apiVersion: example.com/v1, kind: Boat, metadata: {name: a}, spec: {seats: 1, size: 2m}}", ""},
		{"a custom resource with a misspelt field", "boat-example-v1.json", "{apiVersion: example.com/v1, kind: Boat, spec: {seat: 1}}", "spec.seat: not allowed"},
		{"any kind", "all.json", "{apiVersion: v1, kind: ConfigMap, data: {a: b}}", ""},
		{"any kind with a misspelt field", "all.json", "{apiVersion: v1, kind: ConfigMap, dta: {a: b}}", "dta: not allowed"},
		{"no kind", "all.json", "{apiVersion: v1}", "kind: required"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var object any
			if err := yaml.Unmarshal([]byte(c.object), &object); err != nil {
				t.Fatal(err)
			}
			v := validator{schemas: schemas, file: c.file}
			got := ""
			if problems := v.validate(schemas[c.file], object, ""); len(problems) > 0 {
				got = problems[0]
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if text := string(files["boat-example-v1.json"]); !strings.Contains(text, "How many sit in it.") {
		t.Errorf("the description is missing: %s", text)
	}
}

// validator is as much of JSON Schema as the schemas use.
type validator struct {
	schemas map[string]any
	file    string
}

func (v validator) validate(schema, value any, path string) (problems []string) {
	s, ok := schema.(map[string]any)
	if !ok {
		if schema == false {
			return []string{path + ": not allowed"}
		}
		return nil
	}
	if ref, ok := s["$ref"].(string); ok {
		file, name, _ := strings.Cut(ref, "#/definitions/")
		if file != "" {
			v.file = file
		}
		target := v.schemas[v.file].(map[string]any)["definitions"].(map[string]any)[name]
		if target == nil {
			return []string{"no definition " + ref}
		}
		return v.validate(target, value, path)
	}
	if types := s["type"]; types != nil && !hasType(types, value) {
		return []string{fmt.Sprintf("%s: %T", path, value)}
	}
	if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, value) {
		return []string{path + ": enum"}
	}
	if want, ok := s["const"]; ok && want != value {
		return []string{path + ": const"}
	}
	for _, sub := range list(s["allOf"]) {
		problems = append(problems, v.validate(sub, value, path)...)
	}
	if one := list(s["oneOf"]); one != nil && !slices.ContainsFunc(one, func(sub any) bool { return len(v.validate(sub, value, path)) == 0 }) {
		problems = append(problems, path+": oneOf")
	}
	if s["if"] != nil && len(v.validate(s["if"], value, path)) == 0 {
		problems = append(problems, v.validate(s["then"], value, path)...)
	}
	for i, item := range list(value) {
		problems = append(problems, v.validate(s["items"], item, fmt.Sprintf("%s[%d]", path, i))...)
	}
	if m, ok := value.(map[string]any); ok {
		problems = append(problems, v.fields(s, m, path)...)
	}
	return problems
}

func (v validator) fields(s, m map[string]any, path string) (problems []string) {
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		sub, ok := properties[name]
		if !ok {
			sub = s["additionalProperties"]
		}
		problems = append(problems, v.validate(sub, m[name], strings.TrimPrefix(path+"."+name, "."))...)
	}
	for _, name := range list(s["required"]) {
		if _, ok := m[name.(string)]; !ok {
			problems = append(problems, strings.TrimPrefix(path+"."+name.(string), ".")+": required")
		}
	}
	return problems
}

func list(value any) []any {
	l, _ := value.([]any)
	return l
}

func hasType(types, value any) bool {
	if all, ok := types.([]any); ok {
		return slices.ContainsFunc(all, func(one any) bool { return hasType(one, value) })
	}
	switch v := value.(type) {
	case nil:
		return types == "null"
	case string:
		return types == "string"
	case bool:
		return types == "boolean"
	case float64:
		return types == "number" || types == "integer" && v == float64(int64(v))
	case []any:
		return types == "array"
	}
	return types == "object"
}
