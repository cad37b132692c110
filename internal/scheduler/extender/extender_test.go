package extender

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// answering serves one verb with a function of the decoded question.
func answering[Q, A any](t *testing.T, verb string, answer func(Q) A) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /base/"+verb, func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := json.NewEncoder(w).Encode(answer(q)); err != nil {
			t.Error(err)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func at(t *testing.T, s *httptest.Server, change func(*configv1.Extender)) *Extender {
	t.Helper()
	spec := configv1.Extender{URLPrefix: s.URL + "/base/"}
	change(&spec)
	list, err := New([]configv1.Extender{spec})
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

func nodes(names ...string) (out []*framework.NodeInfo) {
	for _, name := range names {
		out = append(out, framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	return out
}

var thePod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}

func TestFilter(t *testing.T) {
	for name, cached := range map[string]bool{"whole nodes": false, "names": true} {
		t.Run(name, func(t *testing.T) {
			s := answering(t, "filter", func(q extenderv1.ExtenderArgs) extenderv1.ExtenderFilterResult {
				if (q.NodeNames != nil) != cached || (q.Nodes != nil) == cached || q.Pod.Name != "p" {
					t.Errorf("question: %+v", q)
				}
				r := extenderv1.ExtenderFilterResult{
					FailedNodes:                extenderv1.FailedNodesMap{"b": "busy"},
					FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"c": "never"},
				}
				if cached {
					r.NodeNames = &[]string{"a"}
				} else {
					r.Nodes = &corev1.NodeList{Items: q.Nodes.Items[:1]}
				}
				return r
			})
			e := at(t, s, func(x *configv1.Extender) { x.FilterVerb, x.NodeCacheCapable = "filter", cached })
			fit, refusals, err := e.Filter(t.Context(), thePod, nodes("a", "b", "c", "d"))
			if err != nil || len(fit) != 1 || fit[0].Name() != "a" {
				t.Fatalf("%v %v", fit, err)
			}
			if r := refusals["b"]; r.Code != framework.Unschedulable || r.Reasons[0] != "busy" {
				t.Errorf("b: %+v", r)
			}
			if r := refusals["c"]; r.Code != framework.UnschedulableAndUnresolvable || r.Reasons[0] != "never" {
				t.Errorf("c: %+v", r)
			}
			if r := refusals["d"]; r.Code != framework.UnschedulableAndUnresolvable || len(r.Reasons) != 0 {
				t.Errorf("d: %+v", r)
			}
		})
	}
}

func TestFailuresNameTheExtender(t *testing.T) {
	unknown := answering(t, "filter", func(extenderv1.ExtenderArgs) extenderv1.ExtenderFilterResult {
		return extenderv1.ExtenderFilterResult{NodeNames: &[]string{"z"}}
	})
	said := answering(t, "filter", func(extenderv1.ExtenderArgs) extenderv1.ExtenderFilterResult {
		return extenderv1.ExtenderFilterResult{Error: "out of order"}
	})
	for name, c := range map[string]struct {
		server *httptest.Server
		verb   string
		want   string
	}{
		"a node of its own": {unknown, "filter", `"z" was not among`},
		"its own error":     {said, "filter", "out of order"},
		"no such verb":      {said, "other", "404"},
	} {
		t.Run(name, func(t *testing.T) {
			e := at(t, c.server, func(x *configv1.Extender) { x.FilterVerb, x.NodeCacheCapable = c.verb, true })
			_, _, err := e.Filter(t.Context(), thePod, nodes("a"))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.server.URL) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestScoresAreWeighted(t *testing.T) {
	s := answering(t, "score", func(extenderv1.ExtenderArgs) extenderv1.HostPriorityList {
		return extenderv1.HostPriorityList{{Host: "a", Score: 10}, {Host: "b", Score: 1}}
	})
	e := at(t, s, func(x *configv1.Extender) { x.PrioritizeVerb, x.Weight = "score", 3 })
	scores, err := e.Prioritize(t.Context(), thePod, nodes("a", "b"))
	if err != nil || scores["a"] != 300 || scores["b"] != 30 {
		t.Errorf("%v %v", scores, err)
	}
}

func TestBind(t *testing.T) {
	var got extenderv1.ExtenderBindingArgs
	s := answering(t, "bind", func(q extenderv1.ExtenderBindingArgs) extenderv1.ExtenderBindingResult {
		got = q
		return extenderv1.ExtenderBindingResult{}
	})
	e := at(t, s, func(x *configv1.Extender) { x.BindVerb = "bind" })
	if err := e.Bind(t.Context(), thePod, "a"); err != nil || got != (extenderv1.ExtenderBindingArgs{PodName: "p", PodNamespace: "ns", PodUID: "u", Node: "a"}) {
		t.Errorf("%+v %v", got, err)
	}
}

func TestPreemptChoosesAmongVictims(t *testing.T) {
	victim := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "v"}}
	s := answering(t, "preempt", func(q extenderv1.ExtenderPreemptionArgs) extenderv1.ExtenderPreemptionResult {
		return extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"b": q.NodeNameToMetaVictims["b"]}}
	})
	e := at(t, s, func(x *configv1.Extender) { x.PreemptVerb, x.NodeCacheCapable = "preempt", true })
	find := func(_, uid string) (*corev1.Pod, bool) { return victim, uid == "v" }
	all := map[string]Victims{"a": {Pods: []*corev1.Pod{victim}}, "b": {Pods: []*corev1.Pod{victim}, Violations: 2}}
	left, err := e.Preempt(t.Context(), thePod, all, find)
	if err != nil || len(left) != 1 || left["b"].Violations != 2 || left["b"].Pods[0] != victim {
		t.Errorf("%v %v", left, err)
	}
	if _, err := e.Preempt(t.Context(), thePod, all, func(string, string) (*corev1.Pod, bool) { return nil, false }); err == nil {
		t.Error("a victim that is on no node is accepted")
	}
}

func TestManagedResourcesSelectPods(t *testing.T) {
	e := &Extender{spec: configv1.Extender{ManagedResources: []configv1.ExtenderManagedResource{{Name: "example.com/gpu"}}}}
	with := thePod.DeepCopy()
	with.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}}}}
	if e.Interested(thePod) || !e.Interested(with) {
		t.Error("the resource does not decide")
	}
}

func TestTheTimeoutEndsACall(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer s.Close()
	defer close(release)
	e := at(t, s, func(x *configv1.Extender) { x.FilterVerb, x.HTTPTimeout.Duration = "filter", time.Millisecond })
	if _, _, err := e.Filter(t.Context(), thePod, nodes("a")); err == nil {
		t.Error("no error")
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer s.Close()
	e := at(t, s, func(x *configv1.Extender) { x.BindVerb, x.EnableHTTPS = "bind", true })
	if err := e.Bind(t.Context(), thePod, "a"); err != nil {
		t.Error(err)
	}
	e = at(t, s, func(x *configv1.Extender) {
		x.BindVerb, x.TLSConfig = "bind", &configv1.ExtenderTLSConfig{ServerName: "example.com"}
	})
	if err := e.Bind(t.Context(), thePod, "a"); err == nil {
		t.Error("an unknown certificate is accepted")
	}
}
