package networking_test

import (
	"fmt"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestFieldsOfNewServiceCIDRsAreValidated(t *testing.T) {
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
		{"three ranges", "ServiceCIDR", "spec: {cidrs: [10.0.0.0/8, 'fd00::/64', 11.0.0.0/8]}", []string{"may only hold up to 2 values"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewServiceCIDRsAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an invalid range has only that error", "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nspec: {cidrs: [10.0.0.0/24, a/b]}\n", []string{`spec.cidrs[1]: Invalid value: "a/b": must be a valid CIDR value`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
