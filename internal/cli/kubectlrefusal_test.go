package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/cli/refusal"
)

const refusedDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx
        imagePullPolicy: Always
`

const refusedBoats = `apiVersion: apiextensions.k8s.io/v1
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
              seats: {type: integer, maximum: 9}
              sail: {type: string, enum: [red, white]}
`

// edited returns a manifest with words replaced, in pairs.
func edited(text, name string, words ...string) string {
	return strings.NewReplacer(append([]string{"NAME", name}, words...)...).Replace(text)
}

// TestKubectlsErrorsAreExplained runs the bundled kubectl in processes of its own, against a real
// API server. kubectl's own text stays, and explanations follow it.
func TestKubectlsErrorsAreExplained(t *testing.T) {
	kubeconfig := startAPIServer(t)
	dir, home := t.TempDir(), t.TempDir()
	files := map[string]string{
		"good.yaml":       edited(refusedDeployment, "good"),
		"field.yaml":      edited(refusedDeployment, "field", "replicas", "replica"),
		"value.yaml":      edited(refusedDeployment, "value", "Always", "Alway"),
		"type.yaml":       edited(refusedDeployment, "type", "replicas: 2", "replicas: many"),
		"goodtype.yaml":   edited(refusedDeployment, "good", "replicas: 2", "replicas: many"),
		"immutable.yaml":  edited(refusedDeployment, "good", "app: web", "app: wob"),
		"kind.yaml":       edited(refusedDeployment, "kind", "Deployment", "Deploymnt"),
		"broken.yaml":     "kind: a: b\n",
		"conflict.yaml":   edited(refusedDeployment, "good", "image: nginx", "image: caddy"),
		"list.yaml":       "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: first}\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: second}\n  dta: {a: b}\n",
		"boats.yaml":      refusedBoats,
		"boat.yaml":       "apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: wind}\nspec: {seat: 2}\n",
		"blue.yaml":       "apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: blue}\nspec: {sail: rd}\n",
		"safe.yaml":       "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: safe\n  labels: {pod-security.kubernetes.io/enforce: restricted}\n",
		"pod.yaml":        "apiVersion: v1\nkind: Pod\nmetadata: {name: pod, namespace: safe}\nspec:\n  containers:\n  - {name: first, image: nginx}\n",
		"patch.json":      "{\"spec\": {\"paused\": \"no\"}}",
		"k/field.yaml":    edited(refusedDeployment, "field", "replicas", "replica"),
		"k/kustomization": "",
		"secret.yaml":     "apiVersion: v1\nkind: Secret\nmetadata: {name: secret}\nstringData: {word: [hidden], number: 4711}\n",
	}
	delete(files, "k/kustomization")
	files["k/kustomization.yaml"] = "namePrefix: my-\nresources: [field.yaml]\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer web.Close()
	run := func(t *testing.T, variable, command string) (errors string, failed bool) {
		cmd := program(t, append([]string{"kubectl"}, strings.Fields(command)...)...)
		cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig, "HOME="+home, refusal.Variable+"="+variable)
		cmd.Dir = dir
		cmd.Stdin = strings.NewReader(files["field.yaml"])
		var complaint, out bytes.Buffer
		cmd.Stderr, cmd.Stdout = &complaint, &out
		err := cmd.Run()
		if strings.Contains(out.String(), "knarr:") {
			t.Errorf("an explanation is in the output: %s", out.String())
		}
		return complaint.String(), err != nil
	}
	for _, command := range []string{"apply --server-side -f good.yaml --field-manager=first", "create -f boats.yaml", "create -f safe.yaml", "create serviceaccount default -n safe", "config set-context safe --cluster=knarr --user=kubernetes-admin --namespace=safe"} {
		if text, failed := run(t, "", command); failed || strings.Contains(text, "knarr:") {
			t.Fatalf("%s: %s", command, text)
		}
	}
	// The custom kind is explained from the same cluster.
	explain := program(t, "explain", "boat.spec", "--kubeconfig", kubeconfig)
	explain.Env = append(explain.Env, "HOME="+home)
	out, err := explain.CombinedOutput()
	if text := string(out); err != nil || !strings.Contains(text, "made from the schema") || !strings.Contains(text, "sail: red") {
		t.Errorf("explain: %v, %s", err, text)
	}
	for _, c := range []struct{ command, want string }{
		{"apply -f field.yaml", `field.yaml:5:3: error: spec.replica: unknown field; did you mean "replicas"?`},
		{"create -f field.yaml", `field.yaml:5:3: error: spec.replica: unknown field; did you mean "replicas"?`},
		{"apply --server-side -f field.yaml", `field.yaml:5:3: error: spec.replica: unknown field; did you mean "replicas"?`},
		{"create --dry-run=server -f field.yaml", `field.yaml:5:3: error: spec.replica: unknown field; did you mean "replicas"?`},
		{"create --dry-run=server --validate=warn -f field.yaml", `field.yaml:5:3: warning: spec.replica: unknown field; did you mean "replicas"?`},
		{"create --dry-run=server --validate=ignore -f field.yaml", ``},
		{"apply -f -", `<stdin>:5:3: error: spec.replica: unknown field; did you mean "replicas"?`},
		{"apply -k k", `k/field.yaml:5:3: error: spec.replica: unknown field; did you mean "replicas"?`},
		{"apply -f " + web.URL + "/field.yaml", `a file that is not at hand: error: Deployment default/field: spec.replica: unknown field; did you mean "replicas"?`},
		{"apply -f value.yaml", `value.yaml:13:26: error: spec.template.spec.containers[0].imagePullPolicy: Unsupported value: "Alway": supported values: "Always", "IfNotPresent", "Never"; did you mean "Always"?`},
		{"apply -f type.yaml", `type.yaml:5:3: error: spec.replicas: found the text "many"; allowed is a whole number (without quotes)`},
		{"apply --server-side -f type.yaml", `type.yaml:5:3: error: spec.replicas: found the text "many"; allowed is a whole number (without quotes)`},
		{"apply -f goodtype.yaml", `goodtype.yaml:5:3: error: spec.replicas: found the text "many"; allowed is a whole number (without quotes)`},
		{"apply -f kind.yaml", `kind.yaml:2:7: error: kind: there is no kind "Deploymnt" in apps/v1; did you mean "Deployment"?`},
		{"apply -f broken.yaml", `broken.yaml:1:1: error: invalid YAML: mapping values are not allowed in this context`},
		{"replace -f immutable.yaml", `immutable.yaml:6:3: error: spec.selector: Invalid value: {"matchLabels":{"app":"wob"}}: field is immutable; delete`},
		{"apply --server-side --field-manager=second -f conflict.yaml", `conflict.yaml:12:9: error: spec.template.spec.containers[0].image: conflict with "first"; leave the field out, or take it with --force-conflicts`},
		{"create -f list.yaml", `list.yaml:10:3: error: dta: unknown field; did you mean "data"?`},
		{"apply -f boat.yaml", `boat.yaml:4:8: error: spec.seat: unknown field; did you mean "seats"?`},
		{"apply -f blue.yaml", `blue.yaml:4:14: error: spec.sail: Unsupported value: "rd": supported values: "red", "white"; did you mean "red"?`},
		{"apply -f pod.yaml", `pod.yaml:6:5: error: spec.containers[0]: the container "first" must set securityContext.allowPrivilegeEscalation=false`},
		{"apply -n nowhere -f good.yaml", `good.yaml:3:1: error: metadata.namespace: the namespace "nowhere" does not exist; create it first`},
		{"create -f good.yaml", `good.yaml:3:12: error: metadata.name: the object exists; apply changes it, and replace overwrites it`},
		{`patch deployment good -p {"spec":{"pause":true}}`, `<patch>:1:10: warning: spec.pause: unknown field; did you mean "paused"?`},
		{`patch deployment good --patch-file patch.json`, `patch.json:1:11: error: spec.paused: found the text "no"; allowed is true or false`},
		{`patch deployment good -p {"spec":{"strategy":{"type":"Recreat"}}}`, `<patch>:1:29: error: spec.strategy: Unsupported value: {"type":"Recreat","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}}: supported values: "Recreate", "RollingUpdate"; did you mean "Recreate"?`},
		{"create -f secret.yaml", `secret.yaml:4:14: error: stringData.word: found a value of another type; allowed is a text (in quotes)`},
		{"create deployment web --image=nginx --replicas=-1", ``},
		{"apply -f field.yaml --context safe", `field.yaml:5:3: error: spec.replica: unknown field; did you mean "replicas"?`},
	} {
		t.Run(c.command, func(t *testing.T) {
			plain, _ := run(t, "off", c.command)
			text, failed := run(t, "", c.command)
			if c.want == "" {
				if strings.Contains(text, "knarr:") {
					t.Errorf("got %s", text)
				}
				return
			}
			if !failed && !strings.Contains(c.want, "warning:") {
				t.Errorf("the command succeeded: %s", text)
			}
			if !strings.HasPrefix(text, plain) || plain == "" {
				t.Errorf("kubectl's own text has changed: %q, want %q first", text, plain)
			}
			if !strings.Contains(text, "\nknarr: "+c.want) {
				t.Errorf("got %s\nwant %s", text, c.want)
			}
			if explanation := strings.TrimPrefix(text, plain); strings.Contains(explanation, "hidden") || strings.Contains(explanation, "4711") {
				t.Errorf("a Secret's value is shown: %s", text)
			}
		})
	}
}
