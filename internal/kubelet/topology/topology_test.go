package topology

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func hints(resource string, list ...Hint) Hints { return Hints{resource: list} }

var (
	on0, on1, on2, on01 = Hint{Nodes(0), true}, Hint{Nodes(1), true}, Hint{Nodes(2), true}, Hint{Nodes(0, 1), true}
	spread01            = Hint{Nodes(0, 1), false}
)

func TestPoliciesMergeHints(t *testing.T) {
	two, four := merger{all: Nodes(0, 1)}, merger{all: Nodes(0, 1, 2, 3)}
	near := merger{all: Nodes(0, 1, 2, 3), near: distances{0: {0: 10, 1: 30, 2: 20, 3: 30}, 1: {0: 30, 1: 10, 2: 30, 3: 20}, 2: {0: 20, 1: 30, 2: 10, 3: 30}, 3: {0: 30, 1: 20, 2: 30, 3: 10}}}
	for _, c := range []struct {
		name   string
		m      merger
		policy string
		in     []Hints
		want   Hint
		admit  bool
	}{
		{"none admits without an affinity", two, PolicyNone, []Hints{hints("cpu", on0)}, Hint{}, true},
		{"no provider cares", two, PolicyBestEffort, []Hints{nil, nil}, Hint{Nodes(0, 1), true}, true},
		{"the narrower set wins", two, PolicyBestEffort, []Hints{hints("cpu", spread01, on1)}, on1, true},
		{"the lower node wins a tie", two, PolicyBestEffort, []Hints{hints("cpu", on1, on0)}, on0, true},
		{"all resources on the common node", two, PolicyRestricted, []Hints{hints("cpu", on0, on1, spread01), hints("gpu", on1)}, on1, true},
		{"different nodes are not preferred", two, PolicyRestricted, []Hints{hints("cpu", on0), hints("gpu", spread01)}, Hint{Nodes(0), false}, false},
		{"no common node gives all nodes", two, PolicyBestEffort, []Hints{hints("cpu", on0), hints("gpu", on1)}, Hint{Nodes(0, 1), false}, true},
		{"a resource that cannot be given is not preferred", two, PolicyRestricted, []Hints{{"gpu": []Hint{}}}, Hint{Nodes(0, 1), false}, false},
		{"a resource without a preference does not count", two, PolicyRestricted, []Hints{{"gpu": nil}, hints("cpu", on1)}, on1, true},
		{"restricted admits two nodes if one cannot do", two, PolicyRestricted, []Hints{hints("cpu", on01)}, on01, true},
		{"single-numa-node refuses two nodes", two, PolicySingleNUMANode, []Hints{hints("cpu", on01)}, Hint{0, false}, false},
		{"single-numa-node admits one", two, PolicySingleNUMANode, []Hints{hints("cpu", on0, on1, spread01)}, on0, true},
		{"single-numa-node without a preference", two, PolicySingleNUMANode, []Hints{nil}, Any, true},
		{"a non-preferred affinity meets the demand", four, PolicyBestEffort,
			[]Hints{hints("cpu", Hint{Nodes(0, 1), false}, Hint{Nodes(0, 1, 2), false}), hints("gpu", Hint{Nodes(0), false}, Hint{Nodes(0, 1, 2), false})}, Hint{Nodes(0, 1), false}, true},
		{"without distances the lower nodes win", four, PolicyBestEffort, []Hints{hints("cpu", Hint{Nodes(0, 1), true}, Hint{Nodes(1, 3), true})}, Hint{Nodes(0, 1), true}, true},
		{"with distances the closer nodes win", near, PolicyBestEffort, []Hints{hints("cpu", Hint{Nodes(0, 1), true}, Hint{Nodes(1, 3), true})}, Hint{Nodes(1, 3), true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, admit := c.m.decide(c.policy, c.in)
			if got != c.want || admit != c.admit {
				t.Errorf("got %v (%v) admit=%v, want %v (%v) admit=%v", got.Nodes, got.Preferred, admit, c.want.Nodes, c.want.Preferred, c.admit)
			}
		})
	}
}

// TestMergeEqualsTryingAllPicks compares the merge with the plain way: all combinations of hints.
func TestMergeEqualsTryingAllPicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := merger{all: Nodes(0, 1, 2)}
		hint := rapid.Custom(func(t *rapid.T) Hint {
			return Hint{NodeSet(rapid.Uint64Range(0, 7).Draw(t, "nodes")), rapid.Bool().Draw(t, "preferred")}
		})
		lists := rapid.SliceOfN(rapid.SliceOfN(hint, 1, 4), 1, 4).Draw(t, "lists")
		want, best := demand(lists), Hint{}
		var try func(i int, c choice)
		try = func(i int, c choice) {
			if i == len(lists) {
				if h := (Hint{c.nodes, c.preferred}); h.Nodes != 0 && (best.Nodes == 0 || m.better(h, best, want)) {
					best = h
				}
				return
			}
			for _, h := range lists[i] {
				try(i+1, c.with(h))
			}
		}
		try(0, choice{nodes: m.all, preferred: true})
		if best.Nodes == 0 {
			best.Nodes = m.all
		}
		if got := m.merge(lists); got != best {
			t.Fatalf("got %v, want %v", got, best)
		}
	})
}

func TestManyNodesMergeFast(t *testing.T) {
	m := merger{all: 0xff}
	var lists [][]Hint
	for range 12 { // trying all picks would take 255^12 steps
		var list []Hint
		m.all.Subsets(func(s NodeSet) { list = append(list, Hint{s, s.Len() == 1}) })
		lists = append(lists, list)
	}
	if got := m.merge(lists); got != on0 {
		t.Errorf("got %v", got)
	}
}

// counter is a provider of one resource with a fixed amount on each node.
type counter struct {
	list  []Hint
	fail  error
	calls []string
}

func (c *counter) Hints(*corev1.Pod, *corev1.Container) Hints { return hints("x", c.list...) }
func (c *counter) PodHints(*corev1.Pod) Hints                 { return hints("x", c.list...) }
func (c *counter) Allocate(_ *corev1.Pod, k *corev1.Container, h Hint) error {
	c.calls = append(c.calls, k.Name+"@"+h.Nodes.String())
	return c.fail
}
func (c *counter) Release(pod types.UID) { c.calls = append(c.calls, "release") }
func (c *counter) Pods() []types.UID     { return []types.UID{"u", "gone"} }

func newManager(t *testing.T, policy, scope string, p ...Provider) *Manager {
	t.Helper()
	m, err := New(Config{Policy: policy, Scope: scope, Distances: map[int]map[int]int{0: {0: 10, 1: 20}, 1: {0: 20, 1: 10}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range p {
		m.Add(one)
	}
	return m
}

var twoContainers = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PodSpec{
	InitContainers: []corev1.Container{{Name: "first"}}, Containers: []corev1.Container{{Name: "main"}},
}}

func TestAdmitAllocatesOnTheAffinityOfEachContainer(t *testing.T) {
	for _, scope := range []string{ScopeContainer, ScopePod} {
		p := &counter{list: []Hint{on1}}
		if r := newManager(t, PolicyRestricted, scope, p).Admit(twoContainers); r != nil {
			t.Fatal(r)
		}
		if len(p.calls) != 2 || p.calls[0] != "first@1" || p.calls[1] != "main@1" {
			t.Errorf("scope %s: calls %v", scope, p.calls)
		}
	}
}

func TestARefusedPodKeepsNothing(t *testing.T) {
	p := &counter{list: []Hint{spread01}}
	r := newManager(t, PolicyRestricted, ScopeContainer, p).Admit(twoContainers)
	if r == nil || r.Reason != ReasonAffinity || len(p.calls) != 1 || p.calls[0] != "release" {
		t.Errorf("refusal %+v, calls %v", r, p.calls)
	}
	p = &counter{list: []Hint{on2}, fail: errors.New("no CPUs")}
	r = newManager(t, PolicyNone, ScopeContainer, p).Admit(twoContainers)
	if r == nil || r.Reason != ReasonUnexpected || r.Message != "Allocate failed due to no CPUs, which is unexpected" || p.calls[len(p.calls)-1] != "release" {
		t.Errorf("refusal %+v, calls %v", r, p.calls)
	}
}

func TestSweepReleasesPodsThatEnded(t *testing.T) {
	p := &counter{}
	newManager(t, PolicyNone, "", p).Sweep(func(pod types.UID) bool { return pod == "u" })
	if len(p.calls) != 1 {
		t.Errorf("calls %v", p.calls)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	nine := map[int]map[int]int{}
	for i := range 9 {
		nine[i] = map[int]int{}
	}
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Policy: "strict"}, `topologyManagerPolicy: "strict" is not one of none, best-effort, restricted, single-numa-node`},
		{Config{Scope: "node"}, `topologyManagerScope: "node" is not one of container, pod`},
		{Config{Options: map[string]string{"near": "true"}}, `topologyManagerPolicyOptions: unknown option "near"; allowed are prefer-closest-numa-nodes and max-allowable-numa-nodes`},
		{Config{Options: map[string]string{optionMaxNodes: "4"}}, `topologyManagerPolicyOptions[max-allowable-numa-nodes]: "4" is not a number from 8 to 64`},
		{Config{Policy: PolicyRestricted, Distances: nine}, `topologyManagerPolicy restricted: the machine has 9 NUMA nodes, more than the 8 of max-allowable-numa-nodes`},
		{Config{Policy: PolicyRestricted, Distances: nine, Options: map[string]string{optionMaxNodes: "16"}}, ""},
		{Config{Distances: nine}, ""},
	} {
		_, err := New(c.config)
		if got := errorText(err); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
