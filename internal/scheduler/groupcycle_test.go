package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// gangClient accepts all writes, and keeps the names of deleted pods.
type gangClient struct {
	binding
	names   sync.Mutex
	deleted []string
}

func (c *gangClient) Patch(ctx context.Context, res schema.GroupVersionResource, namespace, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string) (runtime.Object, error) {
	if res.Resource == "podgroups" {
		return &schedulingv1alpha2.PodGroup{}, nil
	}
	return c.binding.Patch(ctx, res, namespace, name, pt, data, opts, sub...)
}

func (c *gangClient) Delete(_ context.Context, _ schema.GroupVersionResource, _, name string, _ metav1.DeleteOptions) error {
	c.names.Lock()
	defer c.names.Unlock()
	c.deleted = append(c.deleted, name)
	return nil
}

// oneObject is a View of at most one object.
type oneObject struct {
	client.View
	object runtime.Object
}

func (v oneObject) Get(string, string) (runtime.Object, bool) { return v.object, v.object != nil }

func (v oneObject) List(string, labels.Selector) []runtime.Object { return nil }

// ending counts the cycles that have begun and not ended. It refuses or fails the pods named.
type ending struct {
	open           *atomic.Int64
	refuses, fails string
}

func (ending) Name() string { return "Ending" }

func (ending) RequeueOn() framework.Events { return framework.NodeAdded }

func (e ending) PreFilter(state framework.State, pod *framework.PodInfo, _ *framework.Snapshot) (sets.Set[string], *framework.Status) {
	e.open.Add(1)
	state["Ending"] = e
	switch pod.Pod.Name {
	case e.refuses:
		return nil, framework.RefuseAlways("refused")
	case e.fails:
		return nil, framework.Fail(fmt.Errorf("broken"))
	}
	return nil, nil
}

func (e ending) End() { e.open.Add(-1) }

// gangOf makes a scheduler whose queue has a gang of pods that need a core each. The node has three
// cores.
func gangOf(t *testing.T, configuration string, minCount int32, plugin *ending, pods ...string) (*Scheduler, *gangClient) {
	t.Helper()
	c := &gangClient{}
	s := New(Config{Client: c, Events: noEvents{}, Gates: []string{"GenericWorkload", "GangScheduling"}})
	if err := s.Configure(mustParse(t, configuration), nil); err != nil {
		t.Fatal(err)
	}
	group := "gang"
	object := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: group}}
	object.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: minCount}
	s.groups.objects = client.ViewOf[*schedulingv1alpha2.PodGroup]{View: oneObject{object: object}}
	s.budgets = client.ViewOf[*policyv1.PodDisruptionBudget]{View: oneObject{}}
	s.cluster = newCluster(nil, nil)
	s.cluster.setNode(node("n", "3"))
	if plugin != nil {
		profile := s.profiles[corev1.DefaultSchedulerName]
		profile.PreFilters = append([]framework.PreFilterPlugin{*plugin}, profile.PreFilters...)
		s.evaluations[profile] = s.metrics.evaluationsOf(profile)
	}
	for _, name := range pods {
		p := pod(name, "1", withPriority(10))
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
		s.onGroupMember(p, false)
		s.onPod(nil, p, false, time.Now())
	}
	return s, c
}

// cycle decides about the gang and waits for its writes.
func (s *Scheduler) cycle(t *testing.T) {
	t.Helper()
	if !s.scheduleOne(t.Context()) {
		t.Fatal("no pod of the gang is tried")
	}
	s.writing.Wait()
	s.drain()
	s.writing.Wait()
}

func TestAGroupEndsTheCyclesOfAllItsPods(t *testing.T) {
	for name, c := range map[string]struct {
		minCount int32
		plugin   ending
		occupied string // cores in use by a pod of lower priority
		result   string
	}{
		"bound":             {2, ending{}, "", resultScheduled},
		"bound but for one": {2, ending{refuses: "c"}, "", resultScheduled},
		"refused":           {3, ending{refuses: "b"}, "", resultUnschedulable},
		"making room":       {3, ending{}, "2", resultWaitsForVictims},
		"failed":            {3, ending{fails: "b"}, "", resultError},
	} {
		t.Run(name, func(t *testing.T) {
			c.plugin.open = &atomic.Int64{}
			s, _ := gangOf(t, "", c.minCount, &c.plugin, "a", "b", "c")
			if c.occupied != "" {
				s.cluster.setPod(framework.NewPodInfo(pod("low", c.occupied, onNode("n"), withPriority(1))))
			}
			s.cycle(t)
			if n := c.plugin.open.Load(); n != 0 {
				t.Errorf("%d cycles have not ended", n)
			}
			if n := counted(t, s.metrics.groupAttempts.WithLabelValues(c.result, corev1.DefaultSchedulerName)); n != 1 {
				t.Errorf("%v attempts with the result %s", n, c.result)
			}
		})
	}
}

// The extender keeps the pods of node n, so that the gang gets the room of node m.
func TestAGangAsksExtendersAboutVictims(t *testing.T) {
	for name, c := range map[string]struct {
		status  int
		deleted string
		result  string
	}{
		"an answer":         {http.StatusOK, "on-m", resultWaitsForVictims},
		"a failed extender": {http.StatusInternalServerError, "", resultError},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				victims := map[string]*extenderv1.MetaVictims{"m": {Pods: []*extenderv1.MetaPod{{UID: "on-m"}}}}
				if err := json.NewEncoder(w).Encode(extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: victims}); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			s, writes := gangOf(t, "extenders: [{urlPrefix: '"+server.URL+"', preemptVerb: preempt, nodeCacheCapable: true}]", 2, nil, "a", "b")
			s.cluster.setNode(node("m", "3"))
			// Without the extender, n is the better choice.
			for on, priority := range map[string]int32{"n": 1, "m": 2} {
				s.cluster.setPod(framework.NewPodInfo(pod("on-"+on, "3", onNode(on), withPriority(priority))))
			}
			s.cycle(t)
			if got := strings.Join(writes.deleted, " "); got != c.deleted {
				t.Errorf("evicted %q, want %q", got, c.deleted)
			}
			if n := counted(t, s.metrics.groupAttempts.WithLabelValues(c.result, corev1.DefaultSchedulerName)); n != 1 {
				t.Errorf("%v attempts with the result %s", n, c.result)
			}
			evictions := counted(t, s.metrics.evictions.WithLabelValues("success"))
			if want := float64(len(writes.deleted)); evictions != want {
				t.Errorf("%v evictions are counted, want %v", evictions, want)
			}
		})
	}
}

// A pod that has a node outside of the cycle of its gang waits for the others, but not for ever.
func TestAPodOfAGangWaitsFiveMinutesForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, writes := gangOf(t, "", 2, nil, "a", "b")
		p, _ := s.queue.take("a", time.Now())
		profile := s.profiles[corev1.DefaultSchedulerName]
		s.cluster.assume(p.info, "n")
		began := time.Now()
		s.finish(t.Context(), &cycle{p: p, pod: p.info.Pod, node: "n", profile: profile, state: framework.State{}, skipped: Names{framework.VolumeBinding, framework.DynamicResources}})
		w, ok := s.waiting.get("a")
		if !ok || strings.Join(w.PendingPlugins(), "") != framework.GangScheduling {
			t.Fatal("the pod does not wait")
		}
		s.writing.Wait()
		if waited := time.Since(began); waited != 5*time.Minute {
			t.Errorf("waited %v", waited)
		}
		s.drain()
		s.writing.Wait()
		if q := s.queue.pods["a"]; q == nil || strings.Join(q.refused, "") != framework.GangScheduling || len(s.cluster.assumed) != 0 || writes.total != 0 {
			t.Errorf("queued %+v, %d pods on nodes, %d bindings", q, len(s.cluster.assumed), writes.total)
		}
	})
}
