package core_test

import (
	"fmt"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestFieldsOfNewEventsAreValidated(t *testing.T) {
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
		{"an Event in another namespace", "Event", "involvedObject: {namespace: other, name: x}", []string{`involvedObject.namespace: Invalid value: "other": does not match event.namespace`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewEventsAreValidated(t *testing.T) {
	event := func(rest string) string { return "apiVersion: v1\nkind: Event\n" + rest + "\n" }
	whole := "eventTime: '2024-01-01T00:00:00.000000Z'\nreportingComponent: a\nreportingInstance: b\naction: c\nreason: d"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a new event may be about another namespace", event("involvedObject: {namespace: other}\n" + whole), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
