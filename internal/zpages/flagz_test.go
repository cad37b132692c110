package zpages

import (
	"testing"
)

// The answers are those of upstream's API server v1.36.3. Its text separates names and values by
// '=' or, at random, by another character.
func TestFlagzAnswersLikeUpstream(t *testing.T) {
	h := Flagz("apiserver", func() map[string]string {
		return map[string]string{"v": "0", "event-ttl": "1h0m0s", "tls-cert-file": ""}
	})
	const structured, text = ";v=v1beta1;g=config.k8s.io;as=Flagz", "text/plain; charset=utf-8"
	wantAnswers(t, h, map[string]answer{
		"people, by name": {"", 200, text, "\napiserver flagz\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\nevent-ttl=1h0m0s\ntls-cert-file=\nv=0\n"},
		"JSON": {"application/json" + structured, 200, "application/json;g=config.k8s.io;v=v1beta1;as=Flagz",
			"{\n  \"kind\": \"Flagz\",\n  \"apiVersion\": \"config.k8s.io/v1beta1\",\n  \"metadata\": {\n    \"name\": \"apiserver\"\n  },\n  \"flags\": {\n    \"event-ttl\": \"1h0m0s\","},
		"YAML":               {"application/yaml" + structured, 200, "application/yaml;g=config.k8s.io;v=v1beta1;as=Flagz", "flags:\n  event-ttl: 1h0m0s\n  tls-cert-file: \"\"\n  v: \"0\"\n"},
		"the older version":  {"application/json;v=v1alpha1;g=config.k8s.io;as=Flagz", 200, "application/json;g=config.k8s.io;v=v1alpha1;as=Flagz", `"apiVersion": "config.k8s.io/v1alpha1"`},
		"JSON of no version": {"application/json", 406, "application/json", "only the following media types are accepted: application/json, application/yaml, text/plain"},
		"another kind":       {"application/json;v=v1beta1;g=config.k8s.io;as=Statusz", 406, "application/json", "NotAcceptable"},
	})
}
