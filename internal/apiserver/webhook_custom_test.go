package apiserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/admission/policy"
	"github.com/knarr-project/knarr/internal/admission/webhook"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

const thingsInTwoVersions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions:
  - {name: v1, served: true, storage: true, schema: &s {openAPIV3Schema: {type: object, properties: {data: {type: object, properties: {a: {type: string}, m: {type: string}}}}}}}
  - {name: v2, served: true, storage: false, schema: *s}
`

// newHookedAPI serves custom resources, with webhooks and policies.
func newHookedAPI(t *testing.T) (testAPI, client.Interface) {
	t.Helper()
	s := newTestServer(t)
	s.runInBackground(s.custom.Run)
	c := s.Client(auth.Component("tester"))
	counts := measure.New()
	s.Register(counts.Collectors()...)
	hooks := webhook.Config{Client: c, Served: s.Served(), Authorizer: allowAll{}, Metrics: counts}
	policies := policy.Config{Client: c, Served: s.Served(), Authorizer: allowAll{}, Metrics: counts}
	s.Use(Security{Authorizer: allowAll{}, Admission: admission.NewChain(nil, policy.NewMutating(t.Context(), policies), webhook.NewMutating(t.Context(), hooks),
		policy.NewValidating(t.Context(), policies), webhook.NewValidating(t.Context(), hooks))})
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	a := testAPI{t, h}
	a.want(http.StatusCreated, "POST", "/api/v1/namespaces", "{metadata: {name: default}}")
	a.define(thingsInTwoVersions)
	return a, c
}

const thingsPath = "/apis/stable.example.com/v1/namespaces/default/things"

func TestWebhooksSeeAndChangeCustomResources(t *testing.T) {
	a, c := newHookedAPI(t)
	h := newHookServer(t, func(path string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if path == "/mutate" {
			return patch(`[{"op":"add","path":"/data/m","value":"yes"},{"op":"add","path":"/data/unknown","value":"pruned"}]`)
		}
		return allowed(path, r)
	})
	none := admissionregistrationv1.SideEffectClassNone
	rules := []admissionregistrationv1.RuleWithOperations{rule("stable.example.com", "v2", "things")}
	validate(t, c, admissionregistrationv1.ValidatingWebhook{ClientConfig: h.at("/"), Rules: rules})
	mustCreate(t, c, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
		Name: "m.example.com", ClientConfig: h.at("/mutate"), Rules: rules, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}}})
	made := a.want(http.StatusCreated, "POST", thingsPath, "{apiVersion: stable.example.com/v1, kind: Thing, metadata: {name: one}, data: {a: b}}")
	if at(made, "data", "m") != "yes" || at(made, "data", "unknown") != nil || made["apiVersion"] != "stable.example.com/v1" {
		t.Errorf("the object is %v", made)
	}
	asked := h.requests()
	if len(asked) != 2 {
		t.Fatalf("webhooks were called %d times", len(asked))
	}
	var seen object
	if err := json.Unmarshal(asked[1].Object.Raw, &seen); err != nil || seen["apiVersion"] != "stable.example.com/v2" || at(seen, "data", "m") != "yes" {
		t.Errorf("the validating webhook saw %v", seen)
	}
	if asked[0].Kind.Version != "v2" || asked[0].RequestKind.Version != "v1" {
		t.Errorf("the request was shown as %v of %v", asked[0].Kind, asked[0].RequestKind)
	}
}

func TestPoliciesOnCustomResourcesWithCustomParameters(t *testing.T) {
	a, c := newHookedAPI(t)
	a.want(http.StatusCreated, "POST", thingsPath, "{apiVersion: stable.example.com/v1, kind: Thing, metadata: {name: param}, data: {a: limit}}")
	match := named("stable.example.com", "v1", "things")
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind: &admissionregistrationv1.ParamKind{APIVersion: "stable.example.com/v2", Kind: "Thing"}, MatchConstraints: match,
		Validations: []admissionregistrationv1.Validation{{Expression: "object.data.a != params.data.a", MessageExpression: "params.apiVersion + ' ' + object.data.m"}}}})
	deny := admissionregistrationv1.DenyAction
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "p", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		ParamRef: &admissionregistrationv1.ParamRef{Name: "param", ParameterNotFoundAction: &deny}}})
	mustCreate(t, c, &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: match, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Mutations: []admissionregistrationv1.Mutation{apply("Object{data: Object.data{m: 'merged'}}")}}})
	mustCreate(t, c, &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "mb"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "m"}})
	made := a.want(http.StatusCreated, "POST", thingsPath, "{apiVersion: stable.example.com/v1, kind: Thing, metadata: {name: one}, data: {a: b}}")
	if at(made, "data", "m") != "merged" || at(made, "data", "a") != "b" {
		t.Errorf("the object is %v", made)
	}
	refused := a.want(http.StatusUnprocessableEntity, "POST", thingsPath, "{apiVersion: stable.example.com/v1, kind: Thing, metadata: {name: two}, data: {a: limit}}")
	if want := `things.stable.example.com "two" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: stable.example.com/v2 merged`; refused["message"] != want {
		t.Errorf("the refusal is %v", refused["message"])
	}
}

func TestWebhooksSeeTheScaleOfACustomResource(t *testing.T) {
	a, c := newHookedAPI(t)
	a.define(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.harbour.io}
spec:
  group: harbour.io
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.crew, statusReplicasPath: .status.crew}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {crew: {type: integer}}}, status: {type: object}}}}
`)
	h := newHookServer(t, allowed)
	validate(t, c, admissionregistrationv1.ValidatingWebhook{ClientConfig: h.at("/"), Rules: []admissionregistrationv1.RuleWithOperations{rule("harbour.io", "v1", "boats/scale")}})
	const boats = "/apis/harbour.io/v1/namespaces/default/boats"
	a.want(http.StatusCreated, "POST", boats, "{apiVersion: harbour.io/v1, kind: Boat, metadata: {name: fram}, spec: {crew: 3}}")
	a.want(http.StatusOK, "PUT", boats+"/fram/scale", "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: fram, namespace: default}, spec: {replicas: 5}}")
	asked := h.requests()
	if len(asked) != 1 || !strings.Contains(string(asked[0].OldObject.Raw), `"replicas":3`) || !strings.Contains(string(asked[0].Object.Raw), `"replicas":5`) {
		t.Errorf("the webhook got %+v", asked)
	}
}
