package apiserver

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

func identityLease(t *testing.T, s *Server, name string) (*coordinationv1.Lease, error) {
	t.Helper()
	return client.Get[*coordinationv1.Lease](t.Context(), s.ownClient(), metav1.NamespaceSystem, name)
}

func TestEachServerHasAnIdentityLease(t *testing.T) {
	t.Parallel()
	servers := severalServers(t, 2, func(i int, c *Config) { c.Identity = fmt.Sprintf("machine-%d", i) })
	for _, s := range servers {
		s.startBackground()
	}
	for i, s := range servers {
		eventually(t, func() error {
			lease, err := identityLease(t, servers[0], s.identity.name)
			if err != nil {
				return err
			}
			if lease.Labels[identityLabel] != "kube-apiserver" || lease.Labels["kubernetes.io/hostname"] != fmt.Sprintf("machine-%d", i) ||
				*lease.Spec.HolderIdentity != s.identity.holder || *lease.Spec.LeaseDurationSeconds != 3600 {
				return fmt.Errorf("%+v", lease)
			}
			return nil
		})
	}
}

func TestServersOfOneHostHaveDifferentIdentities(t *testing.T) {
	names := map[string]bool{}
	for _, host := range []string{"a", "b"} {
		for _, at := range []string{"192.0.2.1:6443", "192.0.2.1:7443", "192.0.2.2:6443"} {
			name := identityName(host, netip.MustParseAddrPort(at))
			if names[name] || len(name) != len("apiserver-")+26 {
				t.Errorf("%s at %s: %s", host, at, name)
			}
			names[name] = true
		}
	}
}

func TestExpiredIdentityLeasesAreRemoved(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	s := newTestServer(t, func(c *Config) { c.Identity, c.Clock = "here", func() time.Time { return now } })
	if err := s.boot.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	dead := newIdentity(s.boot, "dead", netip.AddrPort{}, s.log)
	if err := dead.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "apiserver-of-a-user"}}
	if _, err := client.Create(t.Context(), s.ownClient(), other); err != nil {
		t.Fatal(err)
	}
	step := func(wait time.Duration) {
		t.Helper()
		now = now.Add(wait)
		if err := s.identity.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.identity.removeExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	step(0)
	first, err := identityLease(t, s, s.identity.name)
	if err != nil {
		t.Fatal(err)
	}
	step(identityDuration)
	if _, err := identityLease(t, s, dead.name); err != nil {
		t.Errorf("a Lease was removed before its end: %v", err)
	}
	step(time.Second)
	if _, err := identityLease(t, s, dead.name); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease of a dead server: %v", err)
	}
	if _, err := identityLease(t, s, other.Name); err != nil {
		t.Errorf("another Lease: %v", err)
	}
	last, err := identityLease(t, s, s.identity.name)
	if err != nil || !last.Spec.AcquireTime.Equal(first.Spec.AcquireTime) || !last.Spec.RenewTime.After(first.Spec.RenewTime.Time) {
		t.Errorf("%v → %v, %v", first, last, err)
	}
}
