package core_test

import (
	"fmt"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestFieldsOfNewSecretsAreValidated(t *testing.T) {
	meta := func(kind string) string {
		versions := map[string]string{"Ingress": "networking.k8s.io/v1", "IngressClass": "networking.k8s.io/v1", "NetworkPolicy": "networking.k8s.io/v1", "ServiceCIDR": "networking.k8s.io/v1", "IPAddress": "networking.k8s.io/v1", "PodDisruptionBudget": "policy/v1"}
		version := versions[kind]
		if version == "" {
			version = "v1"
		}
		return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x}\n", version, kind)
	}
	cases := []struct {
		name, kind, body string
		want             []string
	}{
		{"a TLS Secret without key", "Secret", "type: kubernetes.io/tls\ndata: {tls.crt: YQ==}", []string{"data[tls.key]: Required value"}},
		{"a token Secret without account", "Secret", "type: kubernetes.io/service-account-token", []string{"metadata.annotations[kubernetes.io/service-account.name]: Required value"}},
		{"broken docker credentials", "Secret", "type: kubernetes.io/dockerconfigjson\ndata: {.dockerconfigjson: YQ==}", []string{`data[.dockerconfigjson]: Invalid value: "<secret contents redacted>"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestUpdatesOfSecretsKeepFields(t *testing.T) {
	cases := []struct {
		name, before, after string
		want                []string
	}{
		{"a Secret's type", "{apiVersion: v1, kind: Secret, metadata: {name: x}, type: a}", "{apiVersion: v1, kind: Secret, metadata: {name: x}, type: b}", []string{`type: Invalid value: "b": field is immutable`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, "---\n"+c.before)
			obj, _ := resourcetest.Read(t, rules.For, "---\n"+c.after)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}
