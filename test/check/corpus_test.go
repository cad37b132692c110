package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/check"
	"github.com/knarr-project/knarr/knarrtest"
)

// server is an API server that is asked whether it takes an object.
type server struct {
	client *http.Client
	base   string
}

// background are objects that the examples need at the server. They are no cases.
const background = `apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: shop}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: important}
value: 100000
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: sandboxed}
handler: runsc
overhead: {podFixed: {cpu: 100m, memory: 64Mi}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Ship, plural: ships, singular: ship, listKind: ShipList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [seats]
            x-kubernetes-validations:
            - {rule: "!has(self.crew) || self.crew <= self.seats", message: each sailor needs a seat}
            properties:
              seats: {type: integer, minimum: 1, maximum: 100}
              crew: {type: integer}
              colour: {type: string, enum: [red, white]}
              harbour: {type: string, minLength: 2, maxLength: 20, pattern: "^[a-z]+$"}
              length: {x-kubernetes-int-or-string: true}
              flags: {type: array, maxItems: 3, x-kubernetes-list-type: set, items: {type: string}}
              berths:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, people: {type: integer}}}
              notes: {type: object, additionalProperties: {type: string}}
`

// ship is an object of a custom kind, a case beside the examples.
const ship = `apiVersion: example.org/v1
kind: Ship
metadata: {name: fram, namespace: shop}
spec:
  seats: 12
  crew: 4
  colour: red
  harbour: oslo
  length: 39m
  flags: [norway]
  berths: [{name: bow, people: 2}, {name: stern}]
  notes: {built: "1892"}
`

func startServer(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	crds := filepath.Join(dir, "background.yaml")
	if err := os.WriteFile(crds, []byte(background), 0o600); err != nil {
		t.Fatal(err)
	}
	c := knarrtest.Start(t, knarrtest.WithControllers())
	config := c.Config()
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{client, config.Host}
	for _, object := range documents(t, "background", []byte(background)) {
		if status := s.create(t, object, "?fieldValidation=Strict"); status != nil {
			t.Fatalf("%v: %s", object["kind"], status.Message)
		}
	}
	return s
}

// create creates an object and returns the refusal; nil if it is created. The server may need a
// moment to serve a new kind.
func (s *server) create(t *testing.T, object map[string]any, query string) *metav1.Status {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	r := resourceOf(object)
	path := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		path = "/api/" + r.Version
	}
	if namespace := namespaceOf(object); namespace != "" {
		path += "/namespaces/" + namespace
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.base+path+"/"+r.Resource+query, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode < 300 {
		return nil
	}
	status := &metav1.Status{}
	if err := json.Unmarshal(body, status); err != nil {
		t.Fatalf("%s: %s", response.Status, body)
	}
	return status
}

func resourceOf(object map[string]any) schema.GroupVersionResource {
	gvk := gvkOf(object)
	if k, ok := api.ByKind(gvk.GroupKind()); ok {
		return gvk.GroupVersion().WithResource(k.Resource)
	}
	return gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
}

func gvkOf(object map[string]any) schema.GroupVersionKind {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

func namespaceOf(object map[string]any) string {
	m, _ := object["metadata"].(map[string]any)
	namespace, _ := m["namespace"].(string)
	return namespace
}

func documents(t *testing.T, name string, data []byte) (list []map[string]any) {
	t.Helper()
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if object != nil {
			list = append(list, object)
		}
	}
	return list
}

// files are manifests of the repository that are cases as well. Their objects move to the namespace
// of the examples.
var files = []string{
	"../../examples/harbour/harbour.yaml", "../../internal/insight/relations/testdata/shop.yaml",
	"../e2e/testdata/kubectl/tavern.yaml", "../e2e/testdata/kubectl/galley.yaml", "../e2e/testdata/kubectl/crew.yaml",
	"../e2e/testdata/kubectl/keeper.yaml",
}

// corpus returns the objects without mutations: the examples, and files of the repository.
func corpus(t *testing.T) (list []map[string]any) {
	t.Helper()
	for name, data := range check.Examples() {
		list = append(list, documents(t, name, data)...)
	}
	slices.SortFunc(list, func(a, b map[string]any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range documents(t, name, data) {
			if k, ok := api.ByKind(gvkOf(object).GroupKind()); ok && k.Namespaced {
				object["metadata"].(map[string]any)["namespace"] = "shop"
			}
			list = append(list, object)
		}
	}
	return append(list, documents(t, "ship", []byte(ship))...)
}

// verdict is what check finds in an object.
func verdict(t *testing.T, context string, object map[string]any) (errors []check.Finding) {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	report, err := check.Run(t.Context(), check.Options{Files: []string{"-"}, Stdin: bytes.NewReader(data), CRDs: []string{context}})
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	for _, f := range report.Findings {
		if f.Severity == check.Error {
			errors = append(errors, f)
		}
	}
	return errors
}

// difference is a known difference between check and a server, with its reason.
type difference struct{ kind, text, reason string }

// differences are matched against the kind, and a part of the server's message or of the finding.
var differences = []difference{
	{"Service", "provided port is not in the valid range", "the range is a setting of the server"},
	{"HorizontalPodAutoscaler", "spec.scaleTargetRef.kind: there is no kind", "a reference that leads nowhere; the server follows none"},
	{"HorizontalPodAutoscaler", "spec.scaleTargetRef.kind: a ", "a reference that leads nowhere; the server follows none"},
	{"HorizontalPodAutoscaler", "spec.scaleTargetRef.apiVersion: ", "a reference that leads nowhere; the server follows none"},
	{"CustomResourceDefinition", "spec.validation.openAPIV3Schema", "check names the schema of the version instead"},
	{"", "its pods are refused", "the server refuses the pods later, not their workload"},
}

func known(object map[string]any, text string) bool {
	kind, _ := object["kind"].(string)
	return slices.ContainsFunc(differences, func(d difference) bool {
		return (d.kind == "" || d.kind == kind) && strings.Contains(text, d.text)
	})
}

var strictField = regexp.MustCompile(`unknown field ("(?:[^"\\]|\\.)*")`)

// pathsOf returns the paths that a refusal names.
func pathsOf(s *metav1.Status) (paths []string) {
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			if c.Field != "" && c.Field != "<nil>" {
				paths = append(paths, c.Field)
			}
		}
	}
	for _, m := range strictField.FindAllStringSubmatch(s.Message, -1) {
		if path, err := strconv.Unquote(m[1]); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// compare reports how check and the server differ about an object, "" if they agree, and whether
// the server refuses it.
func compare(t *testing.T, s *server, context string, object map[string]any) (differs string, refused bool) {
	t.Helper()
	findings := verdict(t, context, object)
	status := s.create(t, object, "?dryRun=All&fieldValidation=Strict")
	if status != nil && status.Reason == metav1.StatusReasonAlreadyExists {
		status = nil
	}
	var said []string
	for i := range findings {
		said = append(said, findings[i].Text())
	}
	text := strings.Join(said, "; ")
	switch {
	case status == nil && (len(findings) == 0 || known(object, text)):
		return "", false
	case status == nil:
		return "only check finds errors: " + text, false
	case known(object, status.Message):
		return "", true
	case len(findings) == 0:
		return "only the server refuses: " + status.Message, true
	}
	if text := explained(t, context, object, status); text != "" {
		return text, true
	}
	for _, path := range pathsOf(status) {
		if !slices.ContainsFunc(findings, func(f check.Finding) bool { return f.Path == path }) {
			return fmt.Sprintf("check does not find %s: server: %s\ncheck: %s", path, status.Message, text), true
		}
	}
	return "", true
}

// explained reports paths of a refusal without a place in the explanation that kubectl shows.
func explained(t *testing.T, context string, object map[string]any, status *metav1.Status) string {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := object["metadata"].(map[string]any)
	name, _ := m["name"].(string)
	from := check.Sources{Options: check.Options{Files: []string{"-"}, Stdin: bytes.NewReader(data), CRDs: []string{context}}}
	report, err := check.Explain(t.Context(), from, []check.Refusal{{Resource: resourceOf(object), Namespace: namespaceOf(object), Name: name, Status: status, Sent: data}})
	if err != nil {
		t.Fatal(err)
	}
	if len(pathsOf(status)) > 0 && len(report.Findings) == 0 {
		return "no explanation of: " + status.Message
	}
	for _, f := range report.Findings {
		if f.Line == 0 {
			return "an explanation without a place: " + f.Text()
		}
	}
	return ""
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		return otherwise
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("%s is %q; a number is allowed", variable, value)
	}
	return n
}

func TestCheckAgreesWithTheServer(t *testing.T) {
	s := startServer(t)
	context := filepath.Join(t.TempDir(), "background.yaml")
	if err := os.WriteFile(context, []byte(background), 0o600); err != nil {
		t.Fatal(err)
	}
	objects := corpus(t)
	for _, object := range objects {
		if status := s.create(t, object, "?dryRun=All&fieldValidation=Strict"); status != nil && status.Reason != metav1.StatusReasonAlreadyExists {
			t.Errorf("the server refuses the example %v %v: %s", object["kind"], object["metadata"], status.Message)
		}
		if text, _ := compare(t, s, context, object); text != "" {
			t.Errorf("%v %v: %s", object["kind"], object["metadata"], text)
		}
	}
	seed := number(t, "KNARR_CHECK_SEED", 1)
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	cases, refused := number(t, "KNARR_CHECK_CASES", 500), 0
	for i := range cases {
		object := objects[r.IntN(len(objects))]
		changed, what := mutate(r, object)
		differs, bad := compare(t, s, context, changed)
		if differs != "" {
			t.Errorf("case %d: %v: %s: %s", i, object["kind"], what, differs)
		}
		if bad {
			refused++
		}
	}
	t.Logf("%d objects, %d mutations, of which the server refuses %d", len(objects), cases, refused)
	if refused < cases/4 || refused > cases*9/10 {
		t.Errorf("the server refuses %d of %d mutations: they judge little", refused, cases)
	}
}
