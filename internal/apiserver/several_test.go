package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// severalServers are API servers on one store. Each sees the store's changes late, by a time of its
// own, as servers on different machines do.
func severalServers(t testing.TB, n int, change ...func(i int, c *Config)) []*Server {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	st, err := etcd.Open(t.Context(), etcd.Options{DataDir: t.TempDir(), UnsafeNoSync: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = newTestServer(t, func(c *Config) {
			_ = c.Store.Close()
			c.Store, c.Alone = lateStore{st, time.Duration(10*(i+1)) * time.Millisecond}, func() bool { return false }
			for _, fn := range change {
				fn(i, c)
			}
		})
	}
	return servers
}

// lateStore is a store whose changes arrive late. Reads and writes are not delayed.
type lateStore struct {
	store.Store
	by time.Duration
}

func (s lateStore) Watch(ctx context.Context, prefix string, after int64) (store.Stream, error) {
	under, err := s.Store.Watch(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	out := &lateStream{Stream: under, batches: make(chan lateBatch, 4096), closed: make(chan struct{})}
	go out.read(s.by)
	return out, nil
}

type lateStream struct {
	store.Stream
	batches chan lateBatch
	closed  chan struct{}
}

type lateBatch struct {
	batch store.Batch
	err   error
	due   time.Time
}

func (s *lateStream) read(by time.Duration) {
	for {
		b, err := s.Stream.Next(context.Background())
		select {
		case s.batches <- lateBatch{b, err, time.Now().Add(by)}:
		case <-s.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

func (s *lateStream) Next(ctx context.Context) (store.Batch, error) {
	select {
	case b := <-s.batches:
		select {
		case <-time.After(time.Until(b.due)):
		case <-s.closed:
		}
		return b.batch, b.err
	case <-s.closed:
		return store.Batch{}, store.ErrUnavailable
	case <-ctx.Done():
		return store.Batch{}, ctx.Err()
	}
}

func (s *lateStream) Close() {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	s.Stream.Close()
}

func withEndpoints(addresses ...string) func(i int, c *Config) {
	return func(i int, c *Config) {
		withServices(c)
		c.Advertise = netip.MustParseAddrPort(addresses[i])
	}
}

// endpointsOf returns the endpoints as the slices and the Endpoints show them.
func endpointsOf(ctx context.Context, s *Server) (string, error) {
	var fromSlices, fromEndpoints []string
	list, err := s.ownClient().List(ctx, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "default", metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return "", err
	}
	for _, slice := range list.(*discoveryv1.EndpointSliceList).Items {
		for _, e := range slice.Endpoints {
			fromSlices = append(fromSlices, fmt.Sprintf("%s %s:%d", slice.Name, e.Addresses[0], *slice.Ports[0].Port))
		}
	}
	e, err := client.Get[*corev1.Endpoints](ctx, s.ownClient(), "default", "kubernetes")
	if err != nil {
		return "", err
	}
	for _, subset := range e.Subsets {
		for _, a := range subset.Addresses {
			fromEndpoints = append(fromEndpoints, fmt.Sprintf("%s:%d", a.IP, subset.Ports[0].Port))
		}
	}
	return strings.Join(fromSlices, ", ") + " | " + strings.Join(fromEndpoints, ", "), nil
}

func leaseOf(s *Server) store.LeaseID {
	s.living.mu.Lock()
	defer s.living.mu.Unlock()
	return s.living.lease
}

func hasEndpoints(t *testing.T, s *Server, want string) {
	t.Helper()
	eventually(t, func() error {
		if got, err := endpointsOf(t.Context(), s); err != nil || got != want {
			return fmt.Errorf("%q, %v, want %q", got, err, want)
		}
		return nil
	})
}

func TestEachLivingServerIsAnEndpoint(t *testing.T) {
	t.Parallel()
	servers := severalServers(t, 3, withEndpoints("192.0.2.1:6443", "192.0.2.2:6443", "192.0.2.3:7443"))
	servers[0].startBackground()
	hasEndpoints(t, servers[0], "kubernetes 192.0.2.1:6443 | 192.0.2.1:6443")
	servers[1].startBackground()
	servers[2].startBackground()
	for _, s := range servers {
		hasEndpoints(t, s, "kubernetes 192.0.2.1:6443, kubernetes 192.0.2.2:6443, kubernetes-7443 192.0.2.3:7443 | 192.0.2.1:6443, 192.0.2.2:6443, 192.0.2.3:7443")
	}
	for i, s := range servers {
		if first := s.living.first(); first != (i == 0) {
			t.Errorf("server %d is the first: %v", i, first)
		}
	}
	servers[0].living.leave(t.Context())
	hasEndpoints(t, servers[1], "kubernetes 192.0.2.2:6443, kubernetes-7443 192.0.2.3:7443 | 192.0.2.2:6443, 192.0.2.3:7443")
	eventually(t, func() error {
		if !servers[1].living.first() || servers[0].living.first() {
			return errors.New("the first server has left, and the second does not take its place")
		}
		return nil
	})
	// The lease of a dead server expires. Others see its key's deletion at once.
	servers[1].Close()
	if err := servers[2].shared.Home.Store.Revoke(t.Context(), leaseOf(servers[1])); err != nil {
		t.Fatal(err)
	}
	hasEndpoints(t, servers[2], "kubernetes 192.0.2.3:7443 | 192.0.2.3:7443")
	servers[2].living.leave(t.Context())
	hasEndpoints(t, servers[2], "kubernetes 192.0.2.3:7443 | 192.0.2.3:7443")
}

func TestServersOfOneAddressAreEndpoints(t *testing.T) {
	t.Parallel()
	servers := severalServers(t, 2, withEndpoints("192.0.2.1:6443", "192.0.2.1:7443"))
	for _, s := range servers {
		s.startBackground()
	}
	hasEndpoints(t, servers[0], "kubernetes 192.0.2.1:6443, kubernetes-7443 192.0.2.1:7443 | 192.0.2.1:6443, 192.0.2.1:7443")
}

func TestServerWhoseLeaseExpiredIsAnEndpointAgain(t *testing.T) {
	t.Parallel()
	servers := severalServers(t, 2, withEndpoints("192.0.2.1:6443", "[2001:db8::1]:6443"))
	for _, s := range servers {
		s.startBackground()
	}
	// As upstream, the slice of servers of both families has the IPv4 servers.
	const both = "kubernetes 192.0.2.1:6443 | 192.0.2.1:6443, 2001:db8::1:6443"
	hasEndpoints(t, servers[0], both)
	if err := servers[0].shared.Home.Store.Revoke(t.Context(), leaseOf(servers[1])); err != nil {
		t.Fatal(err)
	}
	hasEndpoints(t, servers[0], both)
}

func TestKeyOfALivingServerIsUpstreams(t *testing.T) {
	s := newTestServer(t, withServices, func(c *Config) { c.Advertise = netip.MustParseAddrPort("192.0.2.1:6443") })
	if err := s.boot.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	keepEndpointsOnce(t, s)
	kv, _, err := s.shared.Home.Store.Get(t.Context(), "/registry/masterleases/192.0.2.1", 0)
	if err != nil || kv == nil || kv.Lease == 0 || !strings.HasPrefix(string(kv.Value), "k8s\x00") {
		t.Fatalf("%v, %v", kv, err)
	}
	if at, ok := s.living.announced(kv.Value); !ok || at != s.cfg.Advertise {
		t.Errorf("announces %v, %v", at, ok)
	}
	upstream, err := livingCodec.Encode(&corev1.Endpoints{Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.7"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := s.living.announced(upstream); !ok || at.String() != "192.0.2.7:6443" {
		t.Errorf("upstream's key announces %v, %v", at, ok)
	}
}

func ready(t *testing.T, s *Server) error {
	if code, _, body := do(t, s, "GET", "/readyz", ""); code != 200 {
		return fmt.Errorf("readyz: %d %s", code, body)
	}
	return nil
}

func TestOneServerWritesTheConditionsOfAPIServices(t *testing.T) {
	t.Parallel()
	s := severalServers(t, 1, withEndpoints("192.0.2.1:6443"))[0]
	if err := s.boot.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.runInBackground(s.aggregate)
	const path = "/apis/apiregistration.k8s.io/v1/apiservices"
	mustDo(t, s, 201, "POST", path, `{"metadata":{"name":"v1.wardle.example.com"},"spec":{"group":"wardle.example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":10,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"wardle"}}}`)
	gv := schema.GroupVersion{Group: "wardle.example.com", Version: "v1"}
	checked := func() error {
		if r, ok := s.remotes.Serves(gv); !ok || !r.Checked() {
			return errors.New("not checked yet")
		}
		return nil
	}
	eventually(t, checked)
	if out := mustDo(t, s, 200, "GET", path+"/v1.wardle.example.com", ""); strings.Contains(out, `"Available"`) {
		t.Errorf("a server that is not the first wrote a condition: %s", out)
	}
	if err := s.living.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if out := mustDo(t, s, 200, "GET", path+"/v1.wardle.example.com", ""); !strings.Contains(out, `"ServiceNotFound"`) {
			return fmt.Errorf("the first server wrote no condition: %s", out)
		}
		return nil
	})
}
