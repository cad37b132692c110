package wasm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// built returns the module of examples/scheduler-plugin, which is built once.
func built(t testing.TB) []byte {
	t.Helper()
	module, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return module
}

var buildOnce = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "scheduler-plugin")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "plugin.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out, "../../../examples/scheduler-plugin")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest: %w\n%s", err, output)
	}
	return os.ReadFile(out)
})

// load compiles a guest that is closed with the test. Its deadline is a long one by default, as
// other tests may keep the machine busy.
func load(t testing.TB, module []byte, s Settings) plugin {
	t.Helper()
	host := NewHost()
	if s.Deadline == 0 {
		s.Deadline = time.Minute
	}
	if s.Name == "" {
		s.Name = "guest"
	}
	g, err := host.Compile(t.Context(), module, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Close()
		host.Close()
	})
	return plugin{g}
}

func podInfo(name string, annotations map[string]string) *framework.PodInfo {
	return framework.NewPodInfo(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Annotations: annotations}})
}

// nodes returns a snapshot of nodes with these labels, named node0, node1 and so on.
func nodes(labels ...map[string]string) *framework.Snapshot {
	var infos []*framework.NodeInfo
	for i, l := range labels {
		infos = append(infos, framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node", i), Labels: l}}))
	}
	return framework.NewSnapshot(infos, nil, nil)
}

func TestABuiltGuestFiltersAndScores(t *testing.T) {
	p := load(t, built(t), Settings{})
	if got := strings.Join(p.Points(), " "); got != "PreFilter Filter Score" {
		t.Errorf("it counts at %s", got)
	}
	snapshot := nodes(map[string]string{"example.com/disk": "ssd", "example.com/points": "42"}, map[string]string{"example.com/disk": "hdd"})
	state := framework.State{}
	defer state.End()
	pod := podInfo("pod", map[string]string{"example.com/disk": "ssd"})
	if _, status := p.PreFilter(state, pod, snapshot); !status.OK() {
		t.Fatal(status)
	}
	if status := p.Filter(state, pod, snapshot.Nodes.At(0)); !status.OK() {
		t.Errorf("the node with the disk is refused: %v", status)
	}
	status := p.Filter(state, pod, snapshot.Nodes.At(1))
	if status == nil || status.Code != framework.UnschedulableAndUnresolvable || status.Reasons[0] != "node(s) had another disk (plugin guest)" {
		t.Errorf("the node without the disk has the status %v", status)
	}
	if points, status := p.Score(state, pod, snapshot.Nodes.At(0)); points != 42 || !status.OK() {
		t.Errorf("the score is %d, %v", points, status)
	}
}

func TestOneInstanceServesCyclesInARow(t *testing.T) {
	p := load(t, built(t), Settings{})
	snapshot := nodes(nil)
	for i := range 10 {
		state := framework.State{}
		pod := podInfo(fmt.Sprint("pod", i), nil)
		p.PreFilter(state, pod, snapshot)
		if status := p.Filter(state, pod, snapshot.Nodes.At(0)); !status.OK() {
			t.Fatal(status)
		}
		state.End()
	}
	if p.pool.live != 1 {
		t.Errorf("there are %d instances", p.pool.live)
	}
}

func TestMoreCyclesThanInstancesGoOn(t *testing.T) {
	p := load(t, built(t), Settings{})
	snapshot := nodes(map[string]string{"example.com/disk": "ssd"}, nil)
	var states []framework.State
	for i := range maxInstances + 8 {
		state := framework.State{}
		p.PreFilter(state, podInfo(fmt.Sprint("pod", i), map[string]string{"example.com/disk": "ssd"}), snapshot)
		states = append(states, state)
	}
	for i, state := range states {
		pod := podInfo(fmt.Sprint("pod", i), map[string]string{"example.com/disk": "ssd"})
		if status := p.Filter(state, pod, snapshot.Nodes.At(0)); !status.OK() {
			t.Errorf("cycle %d: %v", i, status)
		}
		if status := p.Filter(state, pod, snapshot.Nodes.At(1)); status.OK() {
			t.Errorf("cycle %d has forgotten its pod", i)
		}
	}
	if p.pool.live > maxInstances {
		t.Errorf("there are %d instances", p.pool.live)
	}
	for _, state := range states {
		state.End()
	}
}

func TestAClosedGuestEndsWithItsLastCycle(t *testing.T) {
	p := load(t, built(t), Settings{})
	snapshot, state, pod := nodes(nil), framework.State{}, podInfo("pod", nil)
	p.PreFilter(state, pod, snapshot)
	p.Close()
	if status := p.Filter(state, pod, snapshot.Nodes.At(0)); !status.OK() {
		t.Errorf("the running cycle does not go on: %v", status)
	}
	state.End()
	if p.pool.live != 0 {
		t.Errorf("%d instances are left", p.pool.live)
	}
}

// ask runs a cycle up to Filter.
func ask(p plugin, snapshot *framework.Snapshot) *framework.Status {
	state := framework.State{}
	defer state.End()
	pod := podInfo("pod", nil)
	if _, status := p.PreFilter(state, pod, snapshot); !status.OK() {
		return status
	}
	if p.counts(filter) {
		if status := p.Filter(state, pod, snapshot.Nodes.At(0)); !status.OK() {
			return status
		}
	}
	if p.counts(score) {
		if _, status := p.Score(state, pod, snapshot.Nodes.At(0)); !status.OK() {
			return status
		}
	}
	return nil
}

func TestAHostileGuestCostsOnlyItsVerdict(t *testing.T) {
	reason := []imported{{moduleScheduler, "result.status_reason", write2}}
	names := []imported{{moduleScheduler, "result.node_names", write2}}
	// loop: memory.grow 128
	grow := []byte{0x03, 0x40, 0x41, 0x80, 0x01, 0x40, 0, 0x1a, 0x0c, 0, 0x0b}
	fill := join([]byte{0x03, 0x40}, constI32(0), constI32(7), constI32(65536), []byte{0xfc, 11, 0, 0x0c, 0, 0x0b})
	for _, c := range []struct {
		name, want string
		imports    []imported
		functions  []defined
	}{
		{"a trap", "unreachable", nil, []defined{{"filter", toI32, []byte{0}}}},
		{"a loop", "exceeded its deadline", nil, []defined{{"filter", toI32, join(forever, constI32(0))}}},
		{"a loop in PreFilter", "exceeded its deadline", nil, []defined{{"filter", toI32, constI32(0)}, {"prefilter", toI32, join(forever, constI32(0))}}},
		{"a loop of fills", "exceeded its deadline", nil, []defined{{"filter", toI32, join(fill, constI32(0))}}},
		{"memory without end", "exceeded its deadline", nil, []defined{{"filter", toI32, join(grow, constI32(0))}}},
		{"recursion without end", "", nil, []defined{{"filter", toI32, []byte{0x10, 0}}}},
		{"calls that double", "exceeded its deadline", nil, doubling(40)},
		{"a large function without calls", "exceeded its deadline", nil, []defined{{"filter", toI32, join([]byte{0x03, 0x40, 0x10, 1, 0x0c, 0, 0x0b}, constI32(0))}, {"large", toNone, bytes.Repeat([]byte{0x01}, 1<<20)}}},
		{"an unknown status code", "status code 77", nil, []defined{{"filter", toI32, constI32(77)}}},
		{"a code of another point", "status code 4", nil, []defined{{"filter", toI32, constI32(int32(framework.Wait))}}},
		{"a score above the range", "score 101", nil, []defined{{"score", toI64, constI64(101 << 32)}}},
		{"a score below the range", "score -1", nil, []defined{{"score", toI64, constI64(-1 << 32)}}},
		{"a reason outside its memory", "outside its memory", reason, []defined{{"filter", toI32, join(callImport(0, -16, 100), constI32(2))}}},
		{"an unknown node", `node "n0"`, names, []defined{{"prefilter", toI32, join(storeText(8, "n0"), callImport(0, 8, 2), constI32(0))}}},
		{"a loop that asks for random bytes", "exceeded its deadline", []imported{{"wasi_snapshot_preview1", "random_get", read2}}, []defined{{"filter", toI32, join([]byte{0x03, 0x40}, callImport(0, 0, 65536), []byte{0x1a, 0x0c, 0, 0x0b}, constI32(0))}}},
		{"a process that exits", "exit_code(3)", []imported{{"wasi_snapshot_preview1", "proc_exit", write1}}, []defined{{"filter", toI32, join(callImport(0, 3), constI32(0))}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var failures []Failure
			p := load(t, assemble(c.imports, c.functions...), Settings{Deadline: 20 * time.Millisecond, Failed: func(f Failure) { failures = append(failures, f) }})
			now := time.Now()
			p.breaker.now = func() time.Time { return now }
			snapshot := nodes(nil)
			for i := range mostFailures {
				status := ask(p, snapshot)
				if status.OK() || !strings.Contains(strings.Join(status.Reasons, " "), c.want) {
					t.Fatalf("attempt %d has the status %v, want %q", i, status, c.want)
				}
			}
			if len(failures) != mostFailures || !failures[mostFailures-1].Suspended || failures[0].Suspended || failures[0].Pod != "pod" {
				t.Errorf("the failures are %+v", failures)
			}
			if status := ask(p, snapshot); status.OK() || !strings.Contains(strings.Join(status.Reasons, " "), "suspended") {
				t.Errorf("it is not suspended: %v", status)
			}
			if len(failures) != mostFailures {
				t.Error("a suspended guest was called")
			}
			now = now.Add(suspension)
			if ask(p, snapshot); len(failures) != mostFailures+1 {
				t.Error("it was not called after the suspension")
			}
		})
	}
}

// doubling returns functions without loops. Each function calls the next one twice.
func doubling(depth int) (functions []defined) {
	for i := range depth {
		next := byte(i + 1)
		functions = append(functions, defined{fmt.Sprint("f", i), toI32, []byte{0x10, next, 0x1a, 0x10, next}})
	}
	functions[0].name = "filter"
	return append(functions, defined{"last", toI32, constI32(0)})
}

func TestAFailureIsIgnoredByChoice(t *testing.T) {
	p := load(t, assemble(nil, defined{"filter", toI32, []byte{0}}, defined{"score", toI64, []byte{0}}), Settings{IgnoreFailures: true})
	if status := ask(p, nodes(nil)); !status.OK() {
		t.Errorf("the status is %v", status)
	}
}

func TestBadModulesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, want string
		module     []byte
		settings   Settings
	}{
		{"no module", "not a WebAssembly module", []byte("#!/bin/sh"), Settings{}},
		{"a cut module", "ends too early", assemble(nil, defined{"filter", toI32, constI32(0)})[:60], Settings{}},
		{"no extension point", "exports no extension point", assemble(nil, defined{"main", toI32, constI32(0)}), Settings{}},
		{"another signature", "the export filter has the signature () -> (i64)", assemble(nil, defined{"filter", toI64, constI64(0)}), Settings{}},
		{"an unknown import", "imports open", assemble([]imported{{"env", "open", read2}}, defined{"filter", toI32, constI32(0)}), Settings{}},
		{"a point that it lacks", "does not export Score", assemble(nil, defined{"filter", toI32, constI32(0)}), Settings{Points: []string{"Score"}}},
		{"table.grow", "table.grow is not allowed", assemble(nil, defined{"filter", toI32, []byte{0xd0, 0x70, 0x41, 1, 0xfc, 15, 0}}), Settings{}},
		{"a start that does not end", "deadline", assemble(nil, defined{"filter", toI32, constI32(0)}, defined{"_start", toNone, forever}), Settings{Deadline: 10 * time.Millisecond}},
		{"a version outside its memory", "outside its memory", assemble(nil, defined{"filter", toI32, constI32(0)}, defined{"knarr_node_version", toI32, constI32(1<<16 - 7)}), Settings{}},
		{"a version without an end", "deadline", assemble(nil, defined{"filter", toI32, constI32(0)}, defined{"knarr_node_version", toI32, join(forever, constI32(0))}), Settings{Deadline: 10 * time.Millisecond}},
		{"a start that ends the process", "exit_code(1)", assemble([]imported{{"wasi_snapshot_preview1", "proc_exit", write1}}, defined{"filter", toI32, constI32(0)}, defined{"_start", toNone, callImport(0, 1)}), Settings{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := NewHost()
			defer host.Close()
			if _, err := host.Compile(context.Background(), c.module, c.settings); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
}

func TestAGuestThatKeepsAnswersSeesOnlyItsNode(t *testing.T) {
	p := load(t, built(t), Settings{Local: true})
	snapshot := nodes(map[string]string{"example.com/disk": "ssd"}, nil)
	for i := range 3 {
		state, pod := framework.State{}, podInfo(fmt.Sprint("pod", i), map[string]string{"example.com/disk": "ssd"})
		p.PreFilter(state, pod, snapshot)
		if status := p.Filter(state, pod, snapshot.Nodes.At(0)); !status.OK() {
			t.Error(status)
		}
		if status := p.Filter(state, pod, snapshot.Nodes.At(1)); status.OK() {
			t.Error("a node without the disk passes")
		}
		state.End()
	}
	one, two, other := podInfo("one", nil), podInfo("two", nil), podInfo("one", map[string]string{"a": "b"})
	key := func(pod *framework.PodInfo) string { return string(local{p}.AppendKey(nil, pod, snapshot)) }
	if key(one) != key(two) || key(one) == key(other) {
		t.Error("the key is not that of the template")
	}
	before := key(one)
	p.breaker.failed(errDeadline)
	if key(one) == before {
		t.Error("the key stays after a failure, so that its answers are kept")
	}
	looks := load(t, assemble([]imported{{moduleAPI, "nodeList", read2}}, defined{"filter", toI32, join(callImport(0, 0, 0), []byte{0x1a}, constI32(0))}), Settings{Local: true})
	if status := ask(looks, snapshot); status.OK() || !strings.Contains(status.Reasons[0], "keepAnswers") {
		t.Errorf("a look at all nodes has the status %v", status)
	}
}

// The start function of this guest reads its configuration; filter compares its first letter.
func TestAGuestReadsItsConfigurationWhenItStarts(t *testing.T) {
	p := load(t, assemble([]imported{{moduleScheduler, "get_config", read2}},
		defined{"_initialize", toNone, join(callImport(0, 64, 64), []byte{0x1a})},
		defined{"filter", toI32, join(constI32(64), []byte{0x2d, 0, 0}, constI32('c'), []byte{0x47}, constI32(1), []byte{0x74})},
	), Settings{Config: "config"})
	if status := ask(p, nodes(nil)); !status.OK() {
		t.Error(status)
	}
}

// A cycle that ends gives its instance up before it leaves the pool. Another cycle may look for an
// instance between the two.
func TestACycleTakesNoInstanceFromOneThatEnds(t *testing.T) {
	p := load(t, built(t), Settings{})
	snapshot := nodes(nil)
	begin := func(i int) framework.State {
		state := framework.State{}
		p.PreFilter(state, podInfo(fmt.Sprint("pod", i), nil), snapshot)
		return state
	}
	var states []framework.State
	for i := range maxInstances {
		states = append(states, begin(i))
	}
	ending := states[0][p.settings.Name].(*cycle)
	in := ending.instance
	ending.instance, ending.ended = nil, true
	other := begin(maxInstances)
	if status := p.Filter(other, podInfo("other", nil), snapshot.Nodes.At(0)); !status.OK() {
		t.Error(status)
	}
	p.pool.end(ending, in)
	for _, state := range append(states[1:], other) {
		state.End()
	}
	if p.pool.live > maxInstances || len(p.pool.held) > 0 {
		t.Errorf("%d instances are left, %d cycles hold one", p.pool.live, len(p.pool.held))
	}
}

func TestABindingWithoutCallsHoldsNoInstance(t *testing.T) {
	p := load(t, built(t), Settings{})
	profile, snapshot := framework.Profile{}, nodes(nil)
	p.AddTo(&profile, 1)
	state, pod := framework.State{}, podInfo("pod", nil)
	p.PreFilter(state, pod, snapshot)
	for _, r := range profile.Reserves {
		if status := r.Reserve(t.Context(), state, pod.Pod, "node0"); !status.OK() {
			t.Error(status)
		}
	}
	if len(p.pool.free) != 1 {
		t.Errorf("%d instances are free, want 1", len(p.pool.free))
	}
	// A cycle that is judged again takes another instance.
	if status := p.Filter(state, pod, snapshot.Nodes.At(0)); !status.OK() {
		t.Error(status)
	}
	state.End()
}

// A trial of preemption tells a guest which pods are gone. This one refuses all nodes until it has
// heard of the pod named low.
func TestAGuestHearsOfRemovedPods(t *testing.T) {
	// removepod copies the target to memory; its name is the first field of the metadata, which is
	// the first field of the pod: two tags with a length each. filter compares the first letter.
	load8 := func(at int32) []byte { return join(constI32(at), []byte{0x2d, 0, 0}) }
	module := assemble([]imported{{moduleScheduler, "targetPod", read2}, {moduleScheduler, "currentNodeName", read2}},
		defined{"prefilter", toI32, join(constI32(1028), constI32(0), []byte{0x3a, 0, 0}, constI32(0))},
		// (byte != 'l') << 1
		defined{"filter", toI32, join(load8(1028), constI32('l'), []byte{0x47}, constI32(1), []byte{0x74})},
		defined{"removepod", toI32, join(callImport(0, 1024, 1024), []byte{0x1a}, callImport(1, 4096, 64), []byte{0x1a}, constI32(0))},
	)
	for _, local := range []bool{false, true} {
		p := load(t, module, Settings{Local: local})
		profile := framework.Profile{}
		p.AddTo(&profile, 1)
		low, high := podInfo("low", nil), podInfo("high", nil)
		priority := int32(10)
		high.Pod.Spec.Priority = &priority
		node := framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node0"}})
		node.AddPod(low)
		snapshot := framework.NewSnapshot([]*framework.NodeInfo{node}, nil, nil)
		input := scheduler.Input{Snapshot: snapshot, Pod: high, Profile: &profile, Explain: true}
		d := scheduler.Decide(input)
		if d.Node != "" {
			t.Fatal("the node is not refused")
		}
		found := scheduler.Preempt(&input, &d, nil)
		if want := !local; (found.Node != "") != want {
			t.Errorf("answers kept: %t: preemption finds %q, %s", local, found.Node, found.Message)
		}
		d.State.End()
	}
}
