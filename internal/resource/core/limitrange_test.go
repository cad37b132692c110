package core_test

import (
	"fmt"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestFieldsOfNewLimitRangesAreValidated(t *testing.T) {
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
		{"limits with min above max", "LimitRange", "spec: {limits: [{type: Container, min: {cpu: 2}, max: {cpu: 1}}]}", []string{"spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1", "min value 2 is greater than default request value 1", "min value 2 is greater than default value 1"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewLimitRangesAreValidated(t *testing.T) {
	limits := func(most, least, ratio string) string {
		return "apiVersion: v1\nkind: LimitRange\nspec: {limits: [{type: Container, max: {memory: " + most + "}, min: {memory: " + least + "}, maxLimitRequestRatio: {memory: " + ratio + "}}]}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a ratio of numbers beyond the range of thousandths", limits("1e10", "500m", "4e18"), []string{"ratio 4E is greater than max/min = 10000000000.000000"}},
		{"a ratio of thousandths", limits("10", "10m", "1001"), []string{"ratio 1001 is greater than max/min = 1000.000000"}},
		{"a ratio beyond any count", limits("9223372036854775808", "10m", "100M"), []string{"ratio 100M is greater than max/min = 0.000000"}},
		{"a negative ratio", limits("200k", "-1", "100M"), []string{"ratio 100M is greater than max/min = -200000.000000"}},
		{"a ratio with a minimum of zero", limits("1", "0", "100M"), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
