package core_test

import (
	"fmt"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestFieldsOfNewEndpointsAreValidated(t *testing.T) {
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
		{"endpoints without address", "Endpoints", "subsets: [{ports: [{port: 1}]}]", []string{"subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewEndpointsAreValidated(t *testing.T) {
	endpoints := func(ip string) string {
		return "apiVersion: v1\nkind: Endpoints\nsubsets: [{addresses: [{ip: '" + ip + "'}]}]\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an endpoint without an address", endpoints(""), []string{`subsets[0].addresses[0].ip: Invalid value: "": must be a valid IP address, (e.g.`, `subsets[0].addresses[0].ip: Invalid value: "": must be a valid IP address`}},
		{"an address with leading zeros", endpoints("010.0.0.1"), []string{`subsets[0].addresses[0].ip: Invalid value: "010.0.0.1": must not have leading 0s`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestUpdatesOfEndpointsAreValidated(t *testing.T) {
	endpoints := "apiVersion: v1\nkind: Endpoints\nsubsets: [{addresses: [{ip: 010.0.0.1}]}]\n"
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"an unchanged address with leading zeros", endpoints, endpoints, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestWarningsOfEndpoints(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"endpoints with addresses in a long form", "apiVersion: v1\nkind: Endpoints\nsubsets: [{addresses: [{ip: '1:0::1'}], notReadyAddresses: [{ip: '1:0::2'}]}]\n", []string{
			`subsets[0].addresses[0].ip: IPv6 address "1:0::1" should be in RFC 5952 canonical format ("1::1")`, `subsets[0].notReadyAddresses[0].ip: IPv6 address "1:0::2" should be in RFC 5952 canonical format ("1::2")`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectWarnings(t, s.Warnings(obj, nil), c.want)
		})
	}
}
