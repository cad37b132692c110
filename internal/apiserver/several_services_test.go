package apiserver

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/service"
	"github.com/knarr-project/knarr/internal/auth"
)

// withSmallRanges gives the servers 14 addresses and 20 node ports. One address belongs to the
// Service kubernetes.
func withSmallRanges(_ int, c *Config) {
	c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.43.0.0/28")}
	c.NodePorts = service.PortRange{Base: 30000, Size: 20}
}

// createUntilFull creates Services through all servers at once until none can create any more. It
// returns the number of created ones.
func createUntilFull(t *testing.T, servers []*Server, round int, spec string) (created int) {
	t.Helper()
	var work sync.WaitGroup
	var mu sync.Mutex
	for n := range 3 * len(servers) {
		s := servers[n%len(servers)]
		work.Go(func() {
			for i := 0; ; i++ {
				code, _, body := do(t, s, "POST", "/api/v1/namespaces/default/services", fmt.Sprintf(`{"metadata":{"name":"s%d-%d-%d"},"spec":%s}`, round, n, i, spec))
				if code != 201 {
					if !strings.Contains(body, "range is full") {
						t.Errorf("%d %s", code, body)
					}
					return
				}
				mu.Lock()
				created++
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return created
}

// checkAllocations checks that each Service has an address and node ports of its own, and that
// nothing else is taken.
func checkAllocations(t *testing.T, s *Server) (services int) {
	t.Helper()
	own := s.Client(auth.Component("tester", auth.GroupMasters))
	list, err := own.List(t.Context(), corev1.SchemeGroupVersion.WithResource("services"), "", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	holders := map[string]string{}
	hold := func(what, name string) {
		if other, taken := holders[what]; taken {
			t.Errorf("%s belongs to %s and %s", what, other, name)
		}
		holders[what] = name
	}
	addresses := 0
	for _, svc := range list.(*corev1.ServiceList).Items {
		services++
		for _, ip := range svc.Spec.ClusterIPs {
			if ip != corev1.ClusterIPNone {
				hold(ip, svc.Name)
				addresses++
			}
		}
		for _, p := range svc.Spec.Ports {
			if p.NodePort != 0 {
				hold(fmt.Sprint("port ", p.NodePort), svc.Name)
			}
		}
	}
	taken, err := own.List(t.Context(), networkingv1.SchemeGroupVersion.WithResource("ipaddresses"), "", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range taken.(*networkingv1.IPAddressList).Items {
		if holders[ip.Name] == "" {
			t.Errorf("the address %s is taken without a Service", ip.Name)
		}
	}
	if n := len(taken.(*networkingv1.IPAddressList).Items); n != addresses {
		t.Errorf("%d addresses are taken, Services have %d", n, addresses)
	}
	return services
}

func deleteServices(t *testing.T, servers []*Server) {
	t.Helper()
	own := servers[0].Client(auth.Component("tester", auth.GroupMasters))
	list, err := own.List(t.Context(), corev1.SchemeGroupVersion.WithResource("services"), "default", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	for i, svc := range list.(*corev1.ServiceList).Items {
		if svc.Name == service.KubernetesServiceName {
			continue
		}
		work.Go(func() {
			mustDo(t, servers[i%len(servers)], 200, "DELETE", "/api/v1/namespaces/default/services/"+svc.Name, "")
		})
	}
	work.Wait()
}

func TestServersShareTheRangesOfServices(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec string
		most int
	}{
		"addresses":  {`{"ports":[{"port":80}]}`, 13},
		"node ports": {`{"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":81}]}`, 10},
		// With a port for health checks.
		"both": {`{"type":"LoadBalancer","externalTrafficPolicy":"Local","ports":[{"port":80}]}`, 10},
	} {
		t.Run(name, func(t *testing.T) {
			servers := severalServers(t, 3, withSmallRanges)
			for _, s := range servers {
				if err := s.boot.reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for round := range 3 {
				if got := createUntilFull(t, servers, round, tc.spec); got != tc.most {
					t.Errorf("round %d: %d Services, want %d", round, got, tc.most)
				}
				for _, s := range servers {
					checkAllocations(t, s)
				}
				deleteServices(t, servers)
				if left := checkAllocations(t, servers[round%3]); left != 1 {
					t.Errorf("round %d: %d Services are left", round, left)
				}
			}
		})
	}
}

// A create that is tried again, because another server took its node port, is counted once.
func TestQuotaCountsAServiceOnce(t *testing.T) {
	t.Parallel()
	servers := severalServers(t, 2, func(_ int, c *Config) { withServices(c) })
	for _, s := range servers {
		chain, err := admission.Default(t.Context(), s.Client(auth.Component("tester", auth.GroupMasters)), admission.Config{Disable: []string{"ServiceAccount"}, Authorizer: auth.Masters{}, Served: s.Served()})
		if err != nil {
			t.Fatal(err)
		}
		s.Use(Security{Authorizer: allowAll{}, Admission: chain})
		if err := s.boot.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const ns = "/api/v1/namespaces/default/"
	mustDo(t, servers[0], 201, "POST", ns+"resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"services.nodeports":"1000"}}}`)
	mustDo(t, servers[0], 200, "PATCH", ns+"resourcequotas/q/status", `{"status":{"hard":{"services.nodeports":"1000"},"used":{"services.nodeports":"0"}}}`, "Content-Type", "application/merge-patch+json")
	var work sync.WaitGroup
	const each, writers = 8, 6
	for n := range writers {
		work.Go(func() {
			for i := range each {
				mustDo(t, servers[n%2], 201, "POST", ns+"services", fmt.Sprintf(`{"metadata":{"name":"s%d-%d"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, n, i))
			}
		})
	}
	work.Wait()
	if out := mustDo(t, servers[1], 200, "GET", ns+"resourcequotas/q", ""); !strings.Contains(out, fmt.Sprintf(`"used":{"services.nodeports":"%d"}`, each*writers)) {
		t.Errorf("the quota: %s", out)
	}
}
