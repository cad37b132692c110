package core_test

import (
	"fmt"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestFieldsOfNewResourceQuotasAreValidated(t *testing.T) {
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
		{"an unknown quota", "ResourceQuota", "spec: {hard: {foo: 1}}", []string{
			`spec.hard[foo]: Invalid value: "foo": must be a standard resource type or fully qualified`, `spec.hard[foo]: Invalid value: "foo": must be a standard resource for quota`}},
		{"conflicting scopes", "ResourceQuota", "spec: {hard: {pods: 1}, scopes: [BestEffort, NotBestEffort]}", []string{"conflicting scopes"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewResourceQuotasAreValidated(t *testing.T) {
	quota := func(spec string) string { return "apiVersion: v1\nkind: ResourceQuota\nspec: " + spec + "\n" }
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"resources of a group count in every scope", quota("{hard: {count/deployments.apps: 1, requests.cpu: 1}, scopes: [NotBestEffort]}"), nil},
		{"every resource that does not fit a scope is reported", quota("{hard: {secrets: 1, services: 1}, scopes: [Terminating]}"), []string{
			`spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource`, `spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource`}},
		{"operators are checked for known scopes only", quota("{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: x, operator: In, values: [a]}]}}"), []string{`spec.scopeSelector.matchExpressions.scopeName: Invalid value: "x": unsupported scope`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestWarningsOfResourceQuotas(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a quota with requests above limits", "apiVersion: v1\nkind: ResourceQuota\nspec: {hard: {cpu: 9, requests.cpu: '5', limits.cpu: '3', memory: '1e10', limits.memory: 1Gi, ephemeral-storage: 5Gi, limits.ephemeral-storage: 3Gi}}\n", []string{
			"ResourceQuota requests.cpu (5) should be less than limits.cpu (3)", "ResourceQuota memory (10e9) should be less than limits.memory (1Gi)"}},
		{"a quota with equal requests and limits", "apiVersion: v1\nkind: ResourceQuota\nspec: {hard: {cpu: 9, requests.cpu: '3', limits.cpu: '3', requests.memory: 1Gi}}\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectWarnings(t, s.Warnings(obj, nil), c.want)
		})
	}
}
