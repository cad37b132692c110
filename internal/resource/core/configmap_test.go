package core_test

import (
	"fmt"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestFieldsOfNewConfigMapsAreValidated(t *testing.T) {
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
		{"a ConfigMap with a bad key", "ConfigMap", "data: {'a/b': c}", []string{`data[a/b]: Invalid value: "a/b": a valid config key must consist of`}},
		{"a key in both", "ConfigMap", "data: {a: b}\nbinaryData: {a: YQ==}", []string{`data[a]: Invalid value: "a": duplicate of key present in binaryData`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestUpdatesOfConfigMapsKeepFields(t *testing.T) {
	cases := []struct {
		name, before, after string
		want                []string
	}{
		{"an immutable ConfigMap", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, immutable: true, data: {a: b}}", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: c}}",
			[]string{"immutable: Forbidden: field is immutable when `immutable` is set", "data: Forbidden: field is immutable when `immutable` is set"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, "---\n"+c.before)
			obj, _ := resourcetest.Read(t, rules.For, "---\n"+c.after)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}
