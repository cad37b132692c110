package node

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func TestATallyIsTheSumOfItsNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &lifecycle{metrics: NewMetrics(), shares: map[string]share{}, tallies: map[zoneID]tally{}}
		nodes := map[string]*corev1.Node{}
		for range rapid.IntRange(1, 50).Draw(t, "changes") {
			name := fmt.Sprint("node-", rapid.IntRange(0, 5).Draw(t, "node"))
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				delete(nodes, name)
				c.count(name, nil)
				continue
			}
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone")}}}
			if ready := rapid.SampledFrom([]corev1.ConditionStatus{"", corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}).Draw(t, "ready"); ready != "" {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
			}
			nodes[name] = n
			c.count(name, n)
		}
		want := map[zoneID]tally{}
		for _, n := range nodes {
			s, sum := shareOf(n), want[zoneOf(n)]
			want[s.zone] = tally{sum.nodes + 1, sum.ready + s.ready, sum.down + s.down}
		}
		if !maps.Equal(c.tallies, want) {
			t.Fatalf("counted %v, there are %v", c.tallies, want)
		}
	})
}

func TestTheLatestVersionOfANodeCounts(t *testing.T) {
	node := func(revision string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: revision},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	}
	ready, down := map[zoneID]tally{zoneOf(node("", "")): {nodes: 1, ready: 1}}, map[zoneID]tally{zoneOf(node("", "")): {nodes: 1, down: 1}}
	for name, tc := range map[string]struct {
		heard, written *corev1.Node
		want           map[zoneID]tally
	}{
		"by the worker":                        {node("9", corev1.ConditionTrue), node("10", corev1.ConditionUnknown), down},
		"by the node itself, after the worker": {node("11", corev1.ConditionTrue), node("10", corev1.ConditionUnknown), ready},
		"which has gone":                       {nil, node("10", corev1.ConditionUnknown), map[zoneID]tally{}},
	} {
		c := &lifecycle{metrics: NewMetrics(), shares: map[string]share{}, tallies: map[zoneID]tally{}}
		c.count("n", tc.heard)
		c.recount(tc.written)
		if !maps.Equal(c.tallies, tc.want) {
			t.Errorf("%s: counted %v, want %v", name, c.tallies, tc.want)
		}
	}
}

func TestTheStateOfAZoneFollowsFromItsNodes(t *testing.T) {
	for tallied, want := range map[tally]zoneState{
		{nodes: 3}:                      zoneNormal, // no node has ever reported
		{nodes: 1, ready: 1}:            zoneNormal,
		{nodes: 1, down: 1}:             zoneFullyDisrupted,
		{nodes: 3, ready: 1, down: 2}:   zoneNormal, // two down nodes are too few
		{nodes: 5, ready: 2, down: 3}:   zonePartlyDisrupted,
		{nodes: 10, ready: 5, down: 5}:  zoneNormal,
		{nodes: 10, ready: 4, down: 6}:  zonePartlyDisrupted,
		{nodes: 10, ready: 0, down: 10}: zoneFullyDisrupted,
	} {
		if got := tallied.state(); got != want {
			t.Errorf("%+v: %v, want %v", tallied, got, want)
		}
	}
}

func TestMetricsShowExistingZonesOnly(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics()
	registry.MustRegister(m.zoneSize, m.zoneHealth, m.zoneUnhealthy)
	of := zoneID{"metrics", "a"}
	page := func() string {
		w := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Body.String()
	}
	told := map[zoneID]tally{of: {nodes: 4, ready: 3, down: 1}}
	m.showZones(told, nil)
	for _, want := range []string{"zone_size", "zone_health", "unhealthy_nodes_in_zone"} {
		value := map[string]int{"zone_size": 4, "zone_health": 75, "unhealthy_nodes_in_zone": 1}[want]
		if line := fmt.Sprintf("node_collector_%s{zone=\"metrics:\x00:a\"} %d\n", want, value); !strings.Contains(page(), line) {
			t.Errorf("lacks %q", line)
		}
	}
	thirds := map[zoneID]tally{of: {nodes: 3, ready: 2, down: 1}}
	m.showZones(thirds, told)
	if line := fmt.Sprintf("node_collector_zone_health{zone=\"metrics:\x00:a\"} %v\n", 200./3); !strings.Contains(page(), line) {
		t.Errorf("lacks %q", line)
	}
	m.showZones(nil, thirds)
	if strings.Contains(page(), "metrics:") {
		t.Errorf("a removed zone is still exported: %s", page())
	}
}
