package apiserver

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/client"
)

func TestEndpointsOfOthersAreLeftAlone(t *testing.T) {
	s := newTestServer(t, withServices, func(c *Config) {
		c.Advertise, c.OthersEndpoints = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 6443), true
	})
	if err := s.reconcileKubernetes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get[*corev1.Service](t.Context(), s.own(), "default", "kubernetes"); err != nil {
		t.Error(err)
	}
	if _, err := client.Get[*discoveryv1.EndpointSlice](t.Context(), s.own(), "default", "kubernetes"); !apierrors.IsNotFound(err) {
		t.Errorf("its endpoints: %v", err)
	}
	if _, err := client.Get[*corev1.Endpoints](t.Context(), s.own(), "default", "kubernetes"); !apierrors.IsNotFound(err) {
		t.Errorf("its older endpoints: %v", err)
	}
}

// TestAnAddressOfOneMachineIsNoEndpoint: the API refuses it, each time that the Service is looked at.
func TestAnAddressOfOneMachineIsNoEndpoint(t *testing.T) {
	for address, want := range map[string]bool{"192.0.2.1": true, "2001:db8::1": true, "127.0.0.1": false, "::1": false, "169.254.0.1": false, "fe80::1": false, "0.0.0.0": false} {
		t.Run(address, func(t *testing.T) {
			s := newTestServer(t, withServices, func(c *Config) { c.Advertise = netip.AddrPortFrom(netip.MustParseAddr(address), 6443) })
			if err := s.reconcileKubernetes(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Get[*corev1.Service](t.Context(), s.own(), "default", "kubernetes"); err != nil {
				t.Error(err)
			}
			if _, err := client.Get[*discoveryv1.EndpointSlice](t.Context(), s.own(), "default", "kubernetes"); (err == nil) != want || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("its endpoints: %v", err)
			}
		})
	}
}
