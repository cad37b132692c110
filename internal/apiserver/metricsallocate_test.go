package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/knarr-project/knarr/internal/apiserver/service"
	"github.com/knarr-project/knarr/internal/store"
)

// fewServices gives a server small ranges for Services: 14 addresses, 4 ports.
func fewServices(c *Config) {
	c.ServiceCIDRs, c.NodePorts = []netip.Prefix{netip.MustParsePrefix("10.47.0.0/28")}, service.PortRange{Base: 30000, Size: 4}
}

// TestAllocationMetrics: upstream's API server v1.36.3 counts a port outside the range as an
// error, but not an address outside all ranges, because no allocator exists for it.
func TestAllocationMetrics(t *testing.T) {
	s := newTestServer(t, fewServices)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	a := testAPI{t, h}
	a.want(http.StatusCreated, "POST", "/api/v1/namespaces", "{metadata: {name: default}}")
	const services, address, port = "/api/v1/namespaces/default/services", "kube_apiserver_clusterip_allocator_", "kube_apiserver_nodeport_allocator_"
	for _, step := range []struct {
		does, path, body string
		code             int
		want             []string
	}{
		{"a requested address and port", services, "{metadata: {name: a}, spec: {type: NodePort, clusterIP: 10.47.0.3, ports: [{port: 80, nodePort: 30002}]}}", 201, []string{
			address + `allocation_total{cidr="10.47.0.0/28",scope="static"} 1`, address + `allocated_ips{cidr="10.47.0.0/28"} 1`, address + `available_ips{cidr="10.47.0.0/28"} 13`,
			address + `allocation_duration_seconds_count{cidr="10.47.0.0/28"} 1`, port + `allocation_total{scope="static"} 1`, port + "allocated_ports 1", port + "available_ports 3"}},
		{"an allocated address and port", services, "{metadata: {name: b}, spec: {type: NodePort, ports: [{port: 80}]}}", 201, []string{
			address + `allocation_total{cidr="10.47.0.0/28",scope="dynamic"} 1`, port + `allocation_total{scope="dynamic"} 1`, port + "allocated_ports 2"}},
		{"a dry run is not counted", services + "?dryRun=All", "{metadata: {name: c}, spec: {type: NodePort, ports: [{port: 80}]}}", 201, []string{
			address + `allocation_total{cidr="10.47.0.0/28",scope="dynamic"} 1`, port + `allocation_total{scope="dynamic"} 1`, port + "allocated_ports 2"}},
		{"a taken address", services, "{metadata: {name: d}, spec: {clusterIP: 10.47.0.3, ports: [{port: 80}]}}", 422, []string{
			address + `allocation_errors_total{cidr="10.47.0.0/28",scope="static"} 1`}},
		{"an address outside the ranges", services, "{metadata: {name: e}, spec: {clusterIP: 10.99.0.3, ports: [{port: 80}]}}", 422, []string{
			address + `allocation_errors_total{cidr="10.47.0.0/28",scope="static"} 1`}},
		{"a taken port", services, "{metadata: {name: f}, spec: {type: NodePort, ports: [{port: 80, nodePort: 30002}]}}", 422, []string{
			port + `allocation_errors_total{scope="static"} 1`, address + `allocated_ips{cidr="10.47.0.0/28"} 2`}},
		{"a port outside the range", services, "{metadata: {name: g}, spec: {type: NodePort, ports: [{port: 80, nodePort: 40000}]}}", 422, []string{port + `allocation_errors_total{scope="static"} 2`}},
		{"more ports than the range has", services, "{metadata: {name: h}, spec: {type: NodePort, ports: [{name: a, port: 80}, {name: b, port: 81}, {name: c, port: 82}]}}", 422, []string{
			port + `allocation_errors_total{scope="dynamic"} 1`, port + "allocated_ports 2", port + "available_ports 2"}},
	} {
		a.want(step.code, "POST", step.path, step.body)
		_, page := fetch(t, h.URL+"/metrics")
		for _, want := range step.want {
			if !strings.Contains(page, want+"\n") {
				t.Errorf("%s: lacks %s", step.does, want)
			}
		}
	}
}

// closedStore is a store that returns errors only.
type closedStore struct {
	store.Store
	since atomic.Bool
}

func (c *closedStore) Get(ctx context.Context, key string, revision int64) (*store.KeyValue, int64, error) {
	if c.since.Load() {
		return nil, 0, store.ErrUnavailable
	}
	return c.Store.Get(ctx, key, revision)
}

func (c *closedStore) Range(ctx context.Context, prefix string, opts store.RangeOptions) (store.RangeResult, error) {
	if c.since.Load() {
		return store.RangeResult{}, store.ErrUnavailable
	}
	return c.Store.Range(ctx, prefix, opts)
}

func TestUnreadableAllocationsHaveNoMetrics(t *testing.T) {
	var away *closedStore
	s := newTestServer(t, fewServices, func(c *Config) { away = &closedStore{Store: c.Store}; c.Store = away })
	away.since.Store(true)
	w := httptest.NewRecorder()
	s.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if page := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(page, "\ngo_goroutines ") {
		t.Fatalf("%d %s", w.Code, page)
	}
	for _, name := range []string{"clusterip_allocator_allocated_ips", "clusterip_allocator_available_ips", "nodeport_allocator_allocated_ports", "nodeport_allocator_available_ports"} {
		if strings.Contains(w.Body.String(), "kube_apiserver_"+name) {
			t.Errorf("%s is told of a store that can not be asked", name)
		}
	}
}
