package apiserver

import (
	"testing"
)

// Annotations that stand for fields of v2 in v1 are dropped from v2 objects, where they would later
// be taken for those fields.
func TestAutoscalerV2DropsFieldAnnotations(t *testing.T) {
	s := newTestServer(t)
	const v2, v1 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
	const spec = `"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}`
	const old = `"autoscaling.alpha.kubernetes.io/`
	merge := []string{"Content-Type", "application/merge-patch+json"}
	for _, a := range []answerCase{
		{"a new autoscaler", "POST", v2, `{"metadata":{"name":"a","annotations":{"keep":"x",` + old + `current-metrics":"1",` + old + `scale-up-tolerance":"x"}},` + spec + `}`, nil, 201, `"annotations":{"keep":"x"}`, "alpha", ""},
		{"a patch", "PATCH", v2 + "/a", `{"metadata":{"annotations":{"more":"y",` + old + `behavior":"{}"}}}`, merge, 200, `"annotations":{"keep":"x","more":"y"}`, "alpha", ""},
		{"a patch of its status", "PATCH", v2 + "/a/status", `{"metadata":{"annotations":{` + old + `conditions":"[]"}},"status":{"desiredReplicas":1}}`, merge, 200, `"annotations":{"keep":"x","more":"y"}`, "alpha", ""},
		{"v1 reads the annotations as fields", "PATCH", v1 + "/a", `{"metadata":{"annotations":{` + old + `conditions":"x",` + old + `metrics":"[{\"type\":\"Pods\",\"pods\":{\"metricName\":\"m\",\"targetAverageValue\":\"1\"}}]"}}}`, merge, 200, `"autoscaling.alpha.kubernetes.io/metrics"`, "conditions", ""},
		{"v2 has the fields", "GET", v2 + "/a", "", nil, 200, `"metric":{"name":"m"}`, `"autoscaling.alpha`, ""},
	} {
		a.check(t, s)
	}
}
