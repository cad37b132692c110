package discovery_test

import (
	"slices"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestUnchangedEndpointsAreNotCheckedAgainstANewAddressType(t *testing.T) {
	slice := func(kind, rest string) string {
		return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: " + kind + "\nendpoints: [{addresses: [10.0.0.1]" + rest + "}]\n"
	}
	old, s := resourcetest.Read(t, rules.For, slice("IPv4", ""))
	const stays = "addressType: Invalid value: \"IPv6\": field is immutable"
	for manifest, want := range map[string][]string{
		slice("IPv6", ""):              {stays},
		slice("IPv6", ", hostname: h"): {stays, "endpoints[0].addresses: Invalid value: \"10.0.0.1\": must be an IPv6 address"},
		slice("IPv4", ", hostname: h"): nil,
	} {
		obj, _ := resourcetest.Read(t, rules.For, manifest)
		resourcetest.Expect(t, s.ValidateUpdate(obj, old), want...)
	}
}

func TestDeprecationsInEndpointSlicesAreWarnedOf(t *testing.T) {
	for _, c := range []struct {
		name, manifest string
		always         bool // checked in updates too
		want           []string
	}{
		{"endpoints with host names", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: FQDN\nendpoints: []\n", false, []string{"spec.addressType: FQDN endpoints are deprecated"}},
		{"endpoints with addresses", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nendpoints: []\n", true, nil},
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

func TestErrorsOfNewEndpointSlicesComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a slice", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]\nports: [{port: 80}]\n", nil},
		{"an incomplete slice", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nendpoints: [{addresses: []}, {addresses: ['fd00::1', 127.0.0.1]}]\nports: [{port: 0}, {port: 1, protocol: ''}]\n",
			[]string{"endpoints[0].addresses: Required value: must contain at least 1 address",
				`endpoints[1].addresses: Invalid value: "fd00::1": must be an IPv4 address`,
				`endpoints[1].addresses[1]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
				`ports[1].name: Duplicate value: ""`, `ports[1].protocol: Unsupported value: "": supported values: "SCTP", "TCP", "UDP"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}
