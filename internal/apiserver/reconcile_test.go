package apiserver

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/apiserver/service"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
)

func TestExternalEndpointsAreNotWritten(t *testing.T) {
	s := newTestServer(t, withServices, func(c *Config) {
		c.Advertise, c.ExternalEndpoints = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 6443), true
	})
	if err := s.boot.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	keepEndpointsOnce(t, s)
	if _, err := client.Get[*corev1.Service](t.Context(), s.ownClient(), "default", "kubernetes"); err != nil {
		t.Error(err)
	}
	if _, err := client.Get[*discoveryv1.EndpointSlice](t.Context(), s.ownClient(), "default", "kubernetes"); !apierrors.IsNotFound(err) {
		t.Errorf("its endpoints: %v", err)
	}
	if _, err := client.Get[*corev1.Endpoints](t.Context(), s.ownClient(), "default", "kubernetes"); !apierrors.IsNotFound(err) {
		t.Errorf("its older endpoints: %v", err)
	}
}

func keepEndpointsOnce(t *testing.T, s *Server) {
	t.Helper()
	if !s.living.wanted() {
		return
	}
	if err := s.living.step(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestLocalAddressesAreNoEndpoints: the API would refuse it at each reconciliation of the
// Service.
func TestLocalAddressesAreNoEndpoints(t *testing.T) {
	for address, want := range map[string]bool{"192.0.2.1": true, "2001:db8::1": true, "127.0.0.1": false, "::1": false, "169.254.0.1": false, "fe80::1": false, "0.0.0.0": false} {
		t.Run(address, func(t *testing.T) {
			s := newTestServer(t, withServices, func(c *Config) { c.Advertise = netip.AddrPortFrom(netip.MustParseAddr(address), 6443) })
			if err := s.boot.reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			keepEndpointsOnce(t, s)
			if _, err := client.Get[*corev1.Service](t.Context(), s.ownClient(), "default", "kubernetes"); err != nil {
				t.Error(err)
			}
			if _, err := client.Get[*discoveryv1.EndpointSlice](t.Context(), s.ownClient(), "default", "kubernetes"); (err == nil) != want || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("its endpoints: %v", err)
			}
		})
	}
}

func TestDefaultServiceCIDROnlyGainsASecondFamily(t *testing.T) {
	s := newTestServer(t, withServices)
	for _, step := range []struct{ name, configured, want string }{
		{"unchanged", "10.43.0.0/24", "10.43.0.0/24"},
		{"another range", "10.44.0.0/24", "10.43.0.0/24"},
		{"another first family", "fd00::/112 10.43.0.0/24", "10.43.0.0/24"},
		{"a second family", "10.43.0.0/24 fd00::/112", "10.43.0.0/24 fd00::/112"},
		{"no second family", "10.43.0.0/24", "10.43.0.0/24 fd00::/112"},
	} {
		s.cfg.ServiceCIDRs = nil
		for _, text := range strings.Fields(step.configured) {
			s.cfg.ServiceCIDRs = append(s.cfg.ServiceCIDRs, netip.MustParsePrefix(text))
		}
		if err := s.boot.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := client.Get[*networkingv1.ServiceCIDR](t.Context(), s.ownClient(), "", service.DefaultServiceCIDR)
		if err != nil || strings.Join(got.Spec.CIDRs, " ") != step.want {
			t.Errorf("%s: %v, %v, want %s", step.name, got.Spec.CIDRs, err, step.want)
		}
	}
}

// Services move to another range while the default one is being deleted.
func TestDeletedRangesGiveNoAddresses(t *testing.T) {
	s := newTestServer(t, withServices)
	if err := s.boot.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	const ranges, services = "/apis/networking.k8s.io/v1/servicecidrs", "/api/v1/namespaces/default/services"
	merge := []string{"Content-Type", "application/merge-patch+json"}
	service := func(name, more string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"ports":[{"port":80}]` + more + `}}`
	}
	for _, a := range []answerCase{
		{"the default range has a finalizer", "PATCH", ranges + "/kubernetes", `{"metadata":{"finalizers":["example.com/waits"]}}`, merge, 200, "example.com/waits", "", ""},
		{"an address in the default range", "POST", services, service("a", ""), nil, 201, `"clusterIP":"10.43.0.`, "", ""},
		{"the default range is deleted", "DELETE", ranges + "/kubernetes", "", nil, 200, "deletionTimestamp", "", ""},
		{"a new range that is not ready", "POST", ranges, `{"metadata":{"name":"new"},"spec":{"cidrs":["10.168.0.0/24"]}}`, nil, 201, "10.168", "", ""},
		{"no range is left", "POST", services, service("b", ""), nil, 500, "range is full", "", ""},
		{"an address in the deleted range", "POST", services, service("b", `,"clusterIP":"10.43.0.9"`), nil, 422, "does not match the current range", "", ""},
		{"the other range becomes ready", "PATCH", ranges + "/new/status", `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, merge, 200, "Ready", "", ""},
		{"an address in the other range", "POST", services, service("b", ""), nil, 201, `"clusterIP":"10.168.0.`, "", ""},
	} {
		a.check(t, s)
	}
	// The API server's own Service keeps its address: without it no server would start.
	if err := client.Delete[*corev1.Service](t.Context(), s.ownClient(), "default", "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.boot.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if svc, err := client.Get[*corev1.Service](t.Context(), s.ownClient(), "default", "kubernetes"); err != nil || svc.Spec.ClusterIP != "10.43.0.1" {
		t.Errorf("the Service kubernetes has %v, %v", svc.Spec.ClusterIP, err)
	}
}

// Kubernetes before 1.20 stored one address of a Service and no list. Its IPAddress may have been
// created later.
func TestUpdateOfAnOldServiceCreatesItsIPAddress(t *testing.T) {
	for name, known := range map[string]bool{"without an IPAddress": false, "that is kept": true} {
		t.Run(name, func(t *testing.T) {
			s := newTestServer(t, withServices)
			if err := s.boot.reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			stored := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"old","namespace":"default","uid":"u","creationTimestamp":"2019-01-01T00:00:00Z"},"spec":{"clusterIP":"10.43.0.11","ports":[{"port":80}]}}`
			if _, err := s.shared.Home.Store.Commit(t.Context(), nil, store.Op{Key: "/registry/services/specs/default/old", Value: []byte(stored)}); err != nil {
				t.Fatal(err)
			}
			const addresses = "/apis/networking.k8s.io/v1/ipaddresses"
			steps := []answerCase{
				{"the address", "POST", addresses, `{"metadata":{"name":"10.43.0.11"},"spec":{"parentRef":{"resource":"services","namespace":"default","name":"old"}}}`, nil, 201, "10.43.0.11", "", ""},
				{"an update", "PUT", "/api/v1/namespaces/default/services/old", `{"metadata":{"name":"old"},"spec":{"clusterIP":"10.43.0.11","ports":[{"port":81}]}}`, nil, 200, `"clusterIPs":["10.43.0.11"]`, "", ""},
				{"its address", "GET", addresses + "/10.43.0.11", "", nil, 200, `"name":"old"`, "", ""},
			}
			if !known {
				steps = steps[1:]
			}
			for _, a := range steps {
				a.check(t, s)
			}
		})
	}
}

func TestServerOfAnotherFamilyReplacesTheEndpoints(t *testing.T) {
	s := newTestServer(t, withServices)
	for address, want := range map[string]discoveryv1.AddressType{"192.0.2.1": discoveryv1.AddressTypeIPv4, "2001:db8::1": discoveryv1.AddressTypeIPv6, "2001:db8::2": discoveryv1.AddressTypeIPv6} {
		s.living.self = netip.AddrPortFrom(netip.MustParseAddr(address), 6443)
		if err := s.boot.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		keepEndpointsOnce(t, s)
		got, err := client.Get[*discoveryv1.EndpointSlice](t.Context(), s.ownClient(), "default", "kubernetes")
		if err != nil || got.AddressType != want || got.Endpoints[0].Addresses[0] != address {
			t.Errorf("at %s: %v, %v", address, got, err)
		}
	}
}
