package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/auth"
)

// newArchitecture returns an API with the kinds of the architecture and their admission plugin.
func newArchitecture(t *testing.T) testAPI {
	t.Helper()
	s := newTestServer(t)
	s.runInBackground(s.custom.Run)
	chain, err := admission.Default(t.Context(), s.Client(auth.Component("tester", auth.GroupMasters)), admission.Config{
		Disable: []string{"ServiceAccount"}, Authorizer: auth.Masters{}, Architecture: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Use(Security{Authorizer: allowAll{}, Admission: chain})
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	a := testAPI{t, h}
	a.do("POST", "/api/v1/namespaces", "metadata: {name: default}")
	definitions, err := architecture.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		d.APIVersion, d.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		a.define(string(text))
	}
	return a
}

// component applies a component and returns the code, the error's message and the warnings.
func (a testAPI) component(name, spec string) (code int, message, warnings string) {
	a.t.Helper()
	return a.apply("/apis/architecture.knarr.io/v1alpha1/namespaces/default/components/"+name, fmt.Sprintf(
		"{apiVersion: architecture.knarr.io/v1alpha1, kind: Component, metadata: {name: %s}, spec: {selector: {matchLabels: {app: %s}}, %s}}", name, name, spec))
}

func (a testAPI) system(spec string) (code int, message, warnings string) {
	a.t.Helper()
	return a.apply("/apis/architecture.knarr.io/v1alpha1/systems/shop", fmt.Sprintf(
		"{apiVersion: architecture.knarr.io/v1alpha1, kind: System, metadata: {name: shop}, spec: {namespaces: [default], %s}}", spec))
}

func (a testAPI) apply(path, text string) (code int, message, warnings string) {
	a.t.Helper()
	code, out, header := a.do("PATCH", path+"?fieldManager=m&force=true", text, "Content-Type", "application/apply-patch+yaml")
	message, _ = out["message"].(string)
	return code, message, strings.ReplaceAll(strings.Join(header.Values("Warning"), "\n"), `\"`, `"`)
}

func TestContradictionsOfTheArchitectureAreRefusedOrWarnedAbout(t *testing.T) {
	a := newArchitecture(t)
	setUp := func() {
		for _, step := range []struct{ name, spec string }{
			{"store", "offers: [{name: sql, port: 5432}], layer: back"},
			{"api", "offers: [{name: http, port: 8080}], requires: [{component: store}], layer: middle"},
			{"web", "requires: [{component: api, port: http}], layer: front"},
		} {
			if code, message, warnings := a.component(step.name, step.spec); code > 201 || warnings != "" {
				t.Fatalf("%s: %d %s %s", step.name, code, message, warnings)
			}
		}
	}
	const rules = "layers: [front, middle, back], forbidden: [{from: {component: default/web}, to: {component: default/store}, reason: use the api}], admission: "
	for _, tc := range []struct{ about, name, spec, want string }{
		{"a circle", "store", "offers: [{name: sql, port: 5432}], requires: [{component: api}]",
			"spec.requires[0].component: %v: the requirements form a circle: default/store → default/api → default/store"},
		{"an unknown component", "web", "requires: [{component: apy}], layer: front",
			`spec.requires[0].component: %v: component default/apy does not exist; components of namespace default: api, store, web; did you mean "api"?`},
		{"an unknown offer", "web", "requires: [{component: api, port: htp}], layer: front",
			`spec.requires[0].port: %v: component default/api offers no "htp"; its offers: http; did you mean "http"?`},
		{"a higher layer", "store", "offers: [{name: sql, port: 5432}], layer: back, requires: [{component: web}]",
			"component default/web is in layer front, above layer back of default/store: system shop allows requirements on its own layer and lower ones (back)"},
		{"an unknown layer", "web", "layer: fromt", `spec.layer: %v: no system of component default/web has the layer "fromt"; their layers: front, middle, back; did you mean "front"?`},
		{"a forbidden dependency", "web", "requires: [{component: store}]", "system shop forbids that component default/web requires component default/store: use the api"},
		{"an offer that another one requires", "api", "layer: middle", `component default/web: spec.requires[0].port: %v`},
	} {
		for _, mode := range []string{"None", "Warn", "Deny"} {
			if code, message, _ := a.system(rules + "None"); code > 201 {
				t.Fatal(code, message)
			}
			setUp()
			if code, message, warnings := a.system(rules + mode); code > 201 || warnings != "" {
				t.Fatalf("%d %s %s", code, message, warnings)
			}
			code, message, warnings := a.component(tc.name, tc.spec)
			has := func(text string) bool {
				before, after, _ := strings.Cut(tc.want, "%v")
				return strings.Contains(text, before) && strings.Contains(text, after)
			}
			switch mode {
			case "None":
				if code != 200 || warnings != "" {
					t.Errorf("%s, %s: %d %s %s", tc.about, mode, code, message, warnings)
				}
			case "Warn":
				if code != 200 || !has(warnings) {
					t.Errorf("%s, %s: %d %s\nhas no warning %s", tc.about, mode, code, warnings, tc.want)
				}
			case "Deny":
				if code != http.StatusUnprocessableEntity || !has(message) {
					t.Errorf("%s, %s: %d %s\nwant %s", tc.about, mode, code, message, tc.want)
				}
			}
		}
	}
}

func TestOldContradictionsDoNotStopOtherChanges(t *testing.T) {
	a := newArchitecture(t)
	a.component("web", "requires: [{component: api}]")
	if code, message, warnings := a.system("admission: Deny"); code != 201 || warnings != "" {
		t.Errorf("%d %s %s", code, message, warnings)
	}
	if code, message, _ := a.component("web", "requires: [{component: api}], owner: people"); code != 200 {
		t.Errorf("%d %s", code, message)
	}
	if code, message, _ := a.component("web", "requires: [{component: api}, {component: store}]"); code != http.StatusUnprocessableEntity || !strings.Contains(message, "spec.requires[1].component") || strings.Contains(message, "spec.requires[0]") {
		t.Errorf("%d %s", code, message)
	}
	if code, message, warnings := a.component("web", "requires: [{component: api, optional: true}, {component: store, optional: true}]"); code != 200 || warnings != "" {
		t.Errorf("%d %s %s", code, message, warnings)
	}
	code, _, header := a.do("DELETE", "/apis/architecture.knarr.io/v1alpha1/namespaces/default/components/web", "")
	if code != 200 || header.Get("Warning") != "" {
		t.Errorf("%d %v", code, header)
	}
}

func TestDeletionsAndSystemsWarnAboutWhatTheyBreak(t *testing.T) {
	a := newArchitecture(t)
	a.component("store", "offers: [{name: sql, port: 5432}]")
	a.component("api", "requires: [{component: store}]")
	if code, message, warnings := a.system("admission: Warn, components: [{namespace: default, name: apy}], forbidden: [{from: {component: default/api}, to: {component: default/store}}]"); code != 201 ||
		!strings.Contains(warnings, `did you mean "default/api"?`) || !strings.Contains(warnings, "component default/api: spec.requires[0].component") {
		t.Errorf("%d %s %s", code, message, warnings)
	}
	code, _, header := a.do("DELETE", "/apis/architecture.knarr.io/v1alpha1/namespaces/default/components/store", "")
	if code != 200 || !strings.Contains(header.Get("Warning"), "component default/store does not exist") {
		t.Errorf("%d %v", code, header)
	}
}

func TestAWorkloadThatNamesAnUndeclaredServiceIsWarnedAbout(t *testing.T) {
	a := newArchitecture(t)
	a.component("store", "offers: [{name: sql, port: 5432}]")
	a.component("api", "offers: [{name: http, port: 8080}]")
	a.want(201, "POST", "/api/v1/namespaces/default/services", "{metadata: {name: store}, spec: {clusterIP: None, selector: {app: store}, ports: [{port: 5432}]}}")
	deploy := func(name, url string) string {
		_, message, warnings := a.apply("/apis/apps/v1/namespaces/default/deployments/"+name, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec: {containers: [{name: c, image: i, env: [{name: STORE_URL, value: "%s"}]}]}`, name, url))
		return message + warnings
	}
	if said := deploy("a", "postgres://store:5432/x"); said != "" {
		t.Errorf("without a System: %s", said)
	}
	a.system("admission: Deny")
	const want = "Deployment b container c env STORE_URL names Service default/store of component default/store, which component default/api does not require"
	if said := deploy("b", "postgres://store:5432/x"); !strings.Contains(said, want) {
		t.Errorf("undeclared: %s", said)
	}
	if said := deploy("b2", "postgres://elsewhere:5432/x"); said != "" {
		t.Errorf("no Service: %s", said)
	}
	a.component("api", "requires: [{component: store}]")
	if said := deploy("c", "postgres://store:5432/x"); said != "" {
		t.Errorf("declared: %s", said)
	}
}

func TestDeclarationsAreValidated(t *testing.T) {
	a := newArchitecture(t)
	for _, tc := range []struct{ spec, want string }{
		{"offers: [{name: http, port: 80}], exposed: [htp]", `spec.exposed[0]: Invalid value: "htp": it must be the name of one of spec.offers: http; did you mean "http"?`},
		{"requiresOutside: [{name: mail}]", "exactly one of cidr and host must be set"},
		{"requiresOutside: [{name: mail, cidr: 1.2.3.4}]", "it must be a range of addresses, such as 203.0.113.0/24"},
		{"data: [{claim: a, secret: b}]", "exactly one of claim, configMap and secret must be set"},
		{"offers: [{name: http, port: 70000}]", "should be less than or equal to 65535"},
		{"offers: [{name: http, port: 80, protocol: HTTP}]", `supported values: "TCP", "UDP", "SCTP"`},
		{"levels: {availability: 101}", "should be less than or equal to 100"},
	} {
		if code, message, _ := a.component("web", tc.spec); code != http.StatusUnprocessableEntity || !strings.Contains(message, tc.want) {
			t.Errorf("%s: %d %s", tc.spec, code, message)
		}
	}
	if code, message, _ := a.apply("/apis/architecture.knarr.io/v1alpha1/namespaces/default/components/web",
		"{apiVersion: architecture.knarr.io/v1alpha1, kind: Component, metadata: {name: web}, spec: {selector: {}}}"); code != http.StatusUnprocessableEntity || !strings.Contains(message, "must not be empty") {
		t.Errorf("%d %s", code, message)
	}
	if code, message, _ := a.apply("/apis/architecture.knarr.io/v1alpha1/systems/shop",
		"{apiVersion: architecture.knarr.io/v1alpha1, kind: System, metadata: {name: shop}, spec: {admission: Warn}}"); code != http.StatusUnprocessableEntity || !strings.Contains(message, "must have members") {
		t.Errorf("%d %s", code, message)
	}
}
