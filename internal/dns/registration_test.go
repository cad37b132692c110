package dns

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/network/nettest"
)

func TestTheAPIServerAcceptsTheRegistration(t *testing.T) {
	nettest.Need(t)
	c := controllertest.New(t)
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := client.Create(ctx, c.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}); err != nil {
		t.Log(err)
	}
	_, err := client.Create(ctx, c.Client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: corev1.NodeSpec{PodCIDR: "10.42.7.0/24", PodCIDRs: []string{"10.42.7.0/24"}}})
	must(t, err)
	s, err := New(Config{NodeName: "b", Client: c.Client, ClusterIP: netip.MustParseAddr("10.43.0.10"), ResolvConf: "/nonexistent"})
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	nettest.Eventually(t, "Service and slice are there", func() bool {
		svc, err1 := client.Get[*corev1.Service](ctx, c.Client, systemNamespace, dnsServiceName)
		slice, err2 := client.Get[*discoveryv1.EndpointSlice](ctx, c.Client, systemNamespace, "kube-dns-b")
		return err1 == nil && err2 == nil && svc.Spec.ClusterIP == "10.43.0.10" && slice.Endpoints[0].Addresses[0] == "10.42.7.1" &&
			slice.Endpoints[0].Hints != nil && len(slice.Endpoints[0].Hints.ForNodes) == 1
	})
}
