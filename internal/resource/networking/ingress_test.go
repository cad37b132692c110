package networking_test

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestDeprecationsInIngressesAreWarnedOf(t *testing.T) {
	for _, c := range []struct {
		name, manifest string
		always         bool // checked in updates too
		want           []string
	}{
		{"an Ingress with the class annotation", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {annotations: {kubernetes.io/ingress.class: a}}\n", false, []string{`annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead`}},
		{"an Ingress with class annotation and field", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {annotations: {kubernetes.io/ingress.class: a}}\nspec: {ingressClassName: a}\n", true, nil},
	} {
		obj, s := resourcetest.Read(t, rules.For, c.manifest)
		if got := s.Warnings(obj, nil); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q", c.name, got)
		}
		if !c.always {
			c.want = nil
		}
		if got := s.Warnings(obj, obj); !slices.Equal(got, c.want) {
			t.Errorf("%s, updated: got %q", c.name, got)
		}
	}
}

func TestFieldsOfNewIngressesAreValidated(t *testing.T) {
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
		{"an Ingress", "Ingress", "spec: {rules: [{host: '*.a.b', http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}", nil},
		{"an empty Ingress", "Ingress", "spec: {}", []string{"either `defaultBackend` or `rules` must be specified"}},
		{"a relative path", "Ingress", "spec: {rules: [{http: {paths: [{path: a, pathType: Exact, backend: {service: {name: s, port: {name: http}}}}]}}]}", []string{`spec.rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewIngressesAreValidatedWithTheirMetadata(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an Ingress with class field and annotation", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {annotations: {kubernetes.io/ingress.class: a}}\nspec: {ingressClassName: b, defaultBackend: {service: {name: s, port: {number: 80}}}}\n", []string{`annotations.kubernetes.io/ingress.class: Invalid value: "a": must match`}},
		{"a host that is an address in any form", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nspec: {rules: [{host: 010.0.0.1}]}\n", []string{`spec.rules[0].host: Invalid value: "010.0.0.1": must be a DNS name, not an IP address`}},
		{"a host that resembles an address", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nspec: {rules: [{host: '1.2.3'}]}\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateNew(obj, obj.(metav1.Object).GetNamespace() != ""), c.want...)
		})
	}
}
