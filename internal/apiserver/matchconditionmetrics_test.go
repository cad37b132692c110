package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestMatchConditionMetrics: the series, including the odd type, are those of upstream's API
// server v1.36.3 for the same conditions.
func TestMatchConditionMetrics(t *testing.T) {
	a, _ := newHookedAPI(t)
	const hook = `{name: %s.told.example.com, failurePolicy: Ignore, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:1/"},
		matchConditions: [{name: a, expression: "%s"}], rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}`
	const other, broken = "object.metadata.name == 'other'", "object.nosuch == 'x'"
	const registration = "/apis/admissionregistration.k8s.io/v1/"
	a.want(http.StatusCreated, "POST", registration+"validatingwebhookconfigurations", fmt.Sprintf("{metadata: {name: v}, webhooks: ["+hook+"]}", "v", other))
	a.want(http.StatusCreated, "POST", registration+"mutatingwebhookconfigurations", fmt.Sprintf("{metadata: {name: m}, webhooks: ["+hook+", "+hook+"]}", "m", other, "broken", broken))
	a.want(http.StatusCreated, "POST", registration+"validatingadmissionpolicies", `{metadata: {name: told}, spec: {validations: [{expression: "false"}],
		matchConditions: [{name: a, expression: "`+other+`"}], matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}}}`)
	a.want(http.StatusCreated, "POST", registration+"validatingadmissionpolicybindings", "{metadata: {name: told}, spec: {policyName: told, validationActions: [Deny]}}")
	a.want(http.StatusCreated, "POST", "/api/v1/namespaces/default/configmaps", "{metadata: {name: one}}")
	_, page := fetch(t, a.URL+"/metrics")
	const family = "apiserver_admission_match_condition_"
	for _, want := range []string{
		`evaluation_seconds_count{kind="webhook",name="v.told.example.com",operation="CREATE",type="validating"} 1`,
		`exclusions_total{kind="webhook",name="v.told.example.com",operation="CREATE",type="validate"} 1`,
		`evaluation_seconds_count{kind="webhook",name="m.told.example.com",operation="CREATE",type="admit"} 1`,
		`exclusions_total{kind="webhook",name="m.told.example.com",operation="CREATE",type="admit"} 1`,
		`evaluation_errors_total{kind="webhook",name="broken.told.example.com",operation="CREATE",type="admit"} 1`,
		`exclusions_total{kind="webhook",name="broken.told.example.com",operation="CREATE",type="admit"} 1`,
		`evaluation_seconds_count{kind="policy",name="told",operation="CREATE",type="validate"} 1`,
	} {
		if !strings.Contains(page, "\n"+family+want+"\n") {
			t.Errorf("lacks %s%s", family, want)
		}
	}
}
