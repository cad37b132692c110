package networking_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestFieldsOfNewNetworkPoliciesAreValidated(t *testing.T) {
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
		{"a policy with an empty peer", "NetworkPolicy", "spec: {podSelector: {}, ingress: [{from: [{}]}]}", []string{"spec.ingress[0].from[0]: Required value: must specify a peer"}},
		{"an exception outside of the range", "NetworkPolicy", "spec: {podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}]}]}", []string{"must be a strict subset of `cidr`"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewNetworkPoliciesAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a range with host bits", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nspec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.1/8}}]}]}\n", []string{`spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length`}},
		{"a policy with an unknown type", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nspec: {podSelector: {}, policyTypes: ['']}\n", []string{`spec.policyTypes[0]: Unsupported value: "": supported values: "Ingress", "Egress"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewNetworkPoliciesAreValidatedWithTheirMetadata(t *testing.T) {
	block := func(cidr, except string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nspec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: " + cidr + ", except: [" + except + "]}}]}]}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an ambiguous exception outside of the range", block("10.0.0.0/8", "11.0.0.1/16"), []string{"except[0]: Invalid value: \"11.0.0.1/16\": must not have bits set beyond the prefix length", "must be a strict subset of `cidr`"}},
		{"an ambiguous exception inside of the range", block("10.0.0.0/8", "10.1.0.1/16"), []string{"must not have bits set beyond the prefix length"}},
		{"an invalid exception", block("10.0.0.0/8", "'a'"), []string{"must be a valid CIDR value"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateNew(obj, obj.(metav1.Object).GetNamespace() != ""), c.want...)
		})
	}
}

func TestUpdatesOfNetworkPoliciesAreValidated(t *testing.T) {
	policy := func(selector string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nspec: {podSelector: " + selector + "}\n"
	}
	good := "{matchExpressions: [{key: a, operator: In, values: [b]}]}"
	bad := "{matchExpressions: [{key: a, operator: In, values: ['a b']}]}"
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a selector that becomes invalid", policy(good), policy(bad), []string{`spec.podSelector.matchExpressions[0].values[0]: Invalid value: "a b": a valid label`}},
		{"a selector that was invalid before", policy(bad), policy(bad), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}
