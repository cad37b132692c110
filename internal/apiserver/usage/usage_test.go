package usage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

var start = time.UnixMilli(1_800_000_000_000)

// kubelet reports a node with two pods: one whose container uses half a core, and one whose
// container was restarted at the tenth second and uses a quarter since.
func kubelet(at time.Time) string {
	seconds, ms := at.Sub(start).Seconds(), at.UnixMilli()
	restarted, since := start.Add(-time.Hour), 100+seconds
	if seconds >= 10 {
		restarted, since = start.Add(10*time.Second), (seconds-10)/4
	}
	text := "# TYPE node_cpu_usage_seconds_total counter\n# TYPE container_cpu_usage_seconds_total counter\n# TYPE container_memory_working_set_bytes gauge\n"
	text += fmt.Sprintf("node_cpu_usage_seconds_total %v %d\nnode_memory_working_set_bytes 1e+09 %d\n", 1000+2*seconds, ms, ms)
	for pod, cpu := range map[string]float64{"even": seconds / 2, "again": since} {
		labels := fmt.Sprintf(`{container="c",namespace="default",pod=%q}`, pod)
		text += fmt.Sprintf("container_cpu_usage_seconds_total%s %v %d\ncontainer_memory_working_set_bytes%s 1024 %d\n", labels, cpu, ms, labels, ms)
		text += fmt.Sprintf("container_start_time_seconds%s %v\n", labels, float64(restarted.UnixMilli())/1000)
	}
	return text + `container_start_time_seconds{container="ended",namespace="default",pod="even"} 1` + "\n"
}

// meter returns a Meter for such a kubelet, in the test's synthetic time, and counts its reads.
func meter(asked *int, text func(at time.Time) string) *Meter {
	began := time.Now()
	return New(Config{
		Now: time.Now,
		Read: func(_ context.Context, node string) (*Reading, error) {
			if node != "one" {
				return nil, errors.New("no such node")
			}
			*asked++
			return Parse(strings.NewReader(text(start.Add(time.Since(began)))))
		},
		Sleep: func(_ context.Context, d time.Duration) error { time.Sleep(d); return nil },
	})
}

func millicores(list corev1.ResourceList) int64 { return list.Cpu().MilliValue() }

func TestUsageOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		m := meter(&asked, kubelet)
		expect := func(what string, readings int, window time.Duration, again int64) {
			t.Helper()
			u, err := m.Node(t.Context(), "one")
			if err != nil {
				t.Fatal(err)
			}
			pod := func(name string) Container {
				list := u.Pods[types.NamespacedName{Namespace: "default", Name: name}]
				if len(list) != 1 || list[0].Name != "c" || list[0].Usage.Memory().Value() != 1024 {
					t.Fatalf("%s: %s has %v", what, name, list)
				}
				return list[0]
			}
			if millicores(u.Node) != 2000 || u.Node.Memory().Value() != 1e9 || millicores(pod("even").Usage) != 500 || millicores(pod("again").Usage) != again {
				t.Errorf("%s: node %v, pods %v", what, u.Node, u.Pods)
			}
			if asked != readings || u.Window != window {
				t.Errorf("%s: the kubelet was asked %d times, the window is %s", what, asked, u.Window)
			}
		}
		expect("the first question waits for two readings", 2, minWindow, 1000)
		time.Sleep(time.Second)
		expect("soon afterwards nobody is asked", 2, minWindow, 1000)
		time.Sleep(14 * time.Second)
		expect("then once, and what was restarted is measured since then", 3, 15*time.Second, 250)
		time.Sleep(time.Hour)
		expect("a reading of long ago is none", 5, minWindow, 250)
		if usages := m.Nodes(t.Context(), []string{"one", "two"}, func(name string, err error) {
			if name != "two" {
				t.Errorf("%s: %v", name, err)
			}
		}); len(usages) != 1 || usages["one"] == nil {
			t.Errorf("of two nodes, one of which does not answer: %v", usages)
		}
		time.Sleep(2 * maxWindow)
		m.node("three")
		if len(m.nodes) != 1 {
			t.Errorf("nodes that nobody asks about are kept: %d", len(m.nodes))
		}
	})
}

func TestSlowKubeletIsReadUntilItHasANewMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		m := meter(&asked, func(at time.Time) string { return kubelet(at.Truncate(10 * time.Second)) })
		u, err := m.Node(t.Context(), "one")
		if err != nil || u.Window != 10*time.Second || millicores(u.Node) != 2000 {
			t.Errorf("%+v, %v", u, err)
		}
		silent := meter(&asked, func(time.Time) string { return "scrape_error 1\n" })
		if _, err := silent.Node(t.Context(), "one"); !errors.Is(err, errNotMeasured) {
			t.Errorf("a kubelet without measurements: %v", err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(kubelet(start))
	f.Add("node_cpu_usage_seconds_total NaN 1\nnode_memory_working_set_bytes +Inf\n")
	f.Add(`container_cpu_usage_seconds_total{pod="p"} -1 -1`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, u := range []*Usage{usageBetween(&Reading{}, r), usageBetween(r, r)} {
			for pod, list := range u.Pods {
				for _, c := range list {
					if c.Usage.Cpu().Sign() < 0 || c.Usage.Memory().Sign() < 0 {
						t.Errorf("%s uses %v", pod, c.Usage)
					}
				}
			}
		}
	})
}
