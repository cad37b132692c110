package scheduler

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/settings"
)

const configHead = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

func configured(t *testing.T, text string) *Scheduler {
	t.Helper()
	s := New(Config{Client: &binding{}, Events: noEvents{}})
	if err := s.Configure(mustParse(t, text), nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func mustParse(t *testing.T, text string) *settings.Configuration {
	t.Helper()
	c, err := settings.Parse([]byte(configHead + text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestArgumentsChangeDecisions(t *testing.T) {
	args := func(plugin, rest string) string {
		return "profiles: [{schedulerName: s, plugins: {score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit}, {name: NodeAffinity}]}}, pluginConfig: [{name: " + plugin + ", args: {" + rest + "}}]}]"
	}
	fast := func(n *corev1.Node) { n.Labels["disk"] = "fast" }
	for name, c := range map[string]struct{ text, want string }{
		"least allocated":    {args("NodeResourcesFit", "scoringStrategy: {type: LeastAllocated}"), "empty"},
		"most allocated":     {args("NodeResourcesFit", "scoringStrategy: {type: MostAllocated}"), "half"},
		"by a rising shape":  {args("NodeResourcesFit", "scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu}], requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}"), "half"},
		"by a falling shape": {args("NodeResourcesFit", "scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu}], requestedToCapacityRatio: {shape: [{utilization: 0, score: 10}, {utilization: 100, score: 0}]}}"), "empty"},
		"an added affinity":  {args("NodeAffinity", "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [fast]}]}]}}"), "half"},
	} {
		t.Run(name, func(t *testing.T) {
			s := configured(t, c.text)
			snapshot := snapshotOf([]*corev1.Node{node("empty", "8"), node("half", "8", fast)}, []*corev1.Pod{pod("old", "4", onNode("half"))})
			d := Decide(Input{Snapshot: snapshot, Pod: framework.NewPodInfo(pod("new", "1")), Profile: s.profiles["s"]})
			if d.Node != c.want {
				t.Errorf("on %q, want %q: %s", d.Node, c.want, d.Message())
			}
		})
	}
}

func TestIgnoredResourcesDoNotCount(t *testing.T) {
	s := configured(t, "extenders: [{urlPrefix: 'http://localhost', managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]}]")
	wants := pod("new", "1")
	wants.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
	d := Decide(Input{Snapshot: snapshotOf([]*corev1.Node{node("n", "8")}, nil), Pod: framework.NewPodInfo(wants), Profile: s.profiles[corev1.DefaultSchedulerName]})
	if d.Node != "n" {
		t.Error(d.Message())
	}
}

func TestBackoffIsConfigured(t *testing.T) {
	s := configured(t, "podInitialBackoffSeconds: 3\npodMaxBackoffSeconds: 7")
	for attempts, want := range map[int]time.Duration{1: 3 * time.Second, 2: 6 * time.Second, 3: 7 * time.Second, 9: 7 * time.Second} {
		if got := s.queue.backoffOf(attempts); got != want {
			t.Errorf("after %d attempts %v, want %v", attempts, got, want)
		}
	}
}

func TestUnknownPluginsAreRefused(t *testing.T) {
	c, err := settings.Parse([]byte(configHead + "profiles: [{schedulerName: a, plugins: {filter: {enabled: [{name: NodeNam}]}}}]"))
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{})
	err = s.Configure(c, nil)
	if err == nil || !strings.Contains(err.Error(), "profiles[0].plugins.filter.enabled[0].name") || !strings.Contains(err.Error(), "NodeName") {
		t.Errorf("%v", err)
	}
	if s.profiles[corev1.DefaultSchedulerName] == nil {
		t.Error("the old configuration is gone")
	}
}

func TestAProfileNeedsQueueSortAndBind(t *testing.T) {
	c, err := settings.Parse([]byte(configHead + "profiles: [{plugins: {multiPoint: {disabled: [{name: PrioritySort}, {name: DefaultBinder}]}}}]"))
	if err != nil {
		t.Fatal(err)
	}
	err = New(Config{}).Configure(c, nil)
	if err == nil || !strings.Contains(err.Error(), "plugins.queueSort.enabled") || !strings.Contains(err.Error(), "plugins.bind.enabled") {
		t.Errorf("%v", err)
	}
}

func TestPercentageOfNodesToScore(t *testing.T) {
	for _, c := range []struct {
		all     int
		percent int32
		want    int
	}{{50, 10, 50}, {1000, 0, 420}, {1000, 30, 300}, {1000, 5, 100}, {6000, 0, 300}} {
		if got := nodesToFind(c.all, c.percent); got != c.want {
			t.Errorf("%d nodes, %d %%: %d, want %d", c.all, c.percent, got, c.want)
		}
	}
}

// An extender refuses node a and prefers node c.
func TestExtendersTakePartInDecisions(t *testing.T) {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, what any) {
		if err := json.NewEncoder(w).Encode(what); err != nil {
			t.Error(err)
		}
	}
	mux.HandleFunc("POST /filter", func(w http.ResponseWriter, r *http.Request) {
		answer(w, extenderv1.ExtenderFilterResult{NodeNames: &[]string{"b", "c"}, FailedNodes: extenderv1.FailedNodesMap{"a": "not a"}})
	})
	mux.HandleFunc("POST /prioritize", func(w http.ResponseWriter, r *http.Request) {
		answer(w, extenderv1.HostPriorityList{{Host: "c", Score: 10}})
	})
	bound := 0
	mux.HandleFunc("POST /bind", func(w http.ResponseWriter, r *http.Request) {
		bound++
		answer(w, extenderv1.ExtenderBindingResult{})
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	s := configured(t, "extenders: [{urlPrefix: '"+server.URL+"', filterVerb: filter, prioritizeVerb: prioritize, bindVerb: bind, weight: 9, nodeCacheCapable: true}]")
	s.cluster = newCluster(nil, nil)
	for _, name := range []string{"a", "b", "c"} {
		s.cluster.setNode(node(name, "8"))
	}
	s.onPod(nil, pod("p", "1"), false, time.Now())
	s.scheduleOne(t.Context())
	s.writing.Wait()
	if at := s.cluster.where["p"].node; at != "c" || bound != 1 {
		t.Errorf("on %q, bound %d times", at, bound)
	}
}

func TestAFailingExtenderFailsTheAttemptUnlessIgnorable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for _, ignorable := range []string{"false", "true"} {
		s := configured(t, "extenders: [{urlPrefix: '"+server.URL+"', filterVerb: filter, ignorable: "+ignorable+"}]")
		d := Decide(Input{
			Snapshot: snapshotOf([]*corev1.Node{node("n", "8")}, nil), Pod: framework.NewPodInfo(pod("p", "1")),
			Profile: s.profiles[corev1.DefaultSchedulerName], Extension: s.extension(t.Context()),
		})
		if (d.Node == "n") != (ignorable == "true") || (d.Err == nil) != (ignorable == "true") {
			t.Errorf("ignorable %s: node %q, error %v", ignorable, d.Node, d.Err)
		}
	}
}
