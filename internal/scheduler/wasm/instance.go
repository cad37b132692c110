package wasm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// slice is the number of steps that a guest gets at once. It takes about 20 µs. So a guest never
// keeps the garbage collector of this process waiting for longer.
const slice = 20_000

// instance is a copy of a guest. A cycle owns it; its calls are not concurrent.
type instance struct {
	guest     *Guest
	mod       api.Module
	memory    api.Memory // nil before the first call between the guest and the host
	functions [points]api.Function
	ctx       *instanceContext
	stack     [1]uint64
	versionAt uint32 // where the guest reads the version of the current node; 0 if it does not
	output    tail
	call      call
	said      string            // the guest's last reason
	refusal   *framework.Status // the last one in filter; it has refusedBy as its reason
	refusedBy string
}

// instanceContext names the instance to the host functions. wazero looks for values of its own in
// each call; there are none.
type instanceContext struct {
	context.Context
	in *instance
}

// Value implements context.Context.
func (*instanceContext) Value(any) any { return nil }

// call has the inputs and outputs of one call of a guest.
type call struct {
	cycle *cycle
	point point

	node     string              // the node that is judged
	target   *corev1.Pod         // the pod that a trial adds to the node, or removes from it
	info     *framework.NodeInfo // the same; nil if only the name is known
	filtered []*framework.NodeInfo
	refusals framework.Refusals
	raw      []int64 // scores in the order of filtered

	reason, nominated string
	nodeNames         []string
	normalized        map[string]int64
	events            []byte

	began time.Duration // on clock
	moved int           // bytes encoded or copied since the clock was read
}

var (
	errDeadline = errors.New("it exceeded its deadline")
	errEnded    = errors.New("the guest ended its own process")
)

var epoch = time.Now()

// clock is a monotonic time. It takes half as long as time.Now, which reads two clocks.
func clock() time.Duration { return time.Since(epoch) }

// refuel gives the guest a new slice if the cycle has time left.
func (in *instance) refuel() uint64 {
	if in.call.cycle != nil && in.call.cycle.spent+clock()-in.call.began > in.guest.settings.Deadline {
		panic(errDeadline)
	}
	return slice
}

// moved counts bytes that the host encoded or copied for the guest. They take time, too.
func (in *instance) moved(n int) {
	if in.call.moved += n; in.call.moved > 1<<20 {
		in.call.moved = 0
		in.refuel()
	}
}

// newInstance makes an instance and runs its start function, which has the deadline of a cycle.
func (g *Guest) newInstance() (*instance, error) {
	in := &instance{guest: g}
	in.ctx = &instanceContext{context.Background(), in}
	starting := &cycle{}
	in.call = call{cycle: starting, began: clock()}
	config := wazero.NewModuleConfig().WithName("").WithArgs(g.settings.Name).
		WithStartFunctions("_initialize", "_start").WithStdout(&in.output).WithStderr(&in.output)
	mod, err := g.runtime.InstantiateModule(in.ctx, g.compiled, config)
	if err != nil {
		return nil, fmt.Errorf("start an instance: %w", in.explain(err))
	}
	if mod.IsClosed() {
		return nil, fmt.Errorf("start an instance: %w", errEnded)
	}
	in.mod, in.memory = mod, mod.Memory()
	for p := range points {
		if g.has[p] {
			in.functions[p] = mod.ExportedFunction(exports[p].name)
		}
	}
	if err := in.askVersionAt(starting); err != nil {
		in.close()
		return nil, fmt.Errorf("start an instance: %w", err)
	}
	in.call = call{}
	return in, nil
}

// askVersionAt asks the guest for the address at which it reads the version of the current node.
func (in *instance) askVersionAt(starting *cycle) error {
	if !in.guest.has[nodeVersion] {
		return nil
	}
	at, err := in.run(&call{cycle: starting, point: nodeVersion})
	if err != nil {
		return fmt.Errorf("call %s: %w", nodeVersion, err)
	}
	if !in.memory.WriteUint64Le(uint32(at), 0) {
		return fmt.Errorf("call %s: %w", nodeVersion, errOutside)
	}
	in.versionAt = uint32(at)
	return nil
}

// run calls an export. The result is 0 for exports without one. After an error the instance cannot
// be used again.
func (in *instance) run(c *call) (result uint64, err error) {
	in.call = *c
	if in.versionAt != 0 {
		version := uint64(0)
		if c.info != nil {
			version = c.info.Version()
		}
		in.memory.WriteUint64Le(in.versionAt, version)
	}
	in.stack[0] = 0
	began := clock()
	in.call.began = began
	err = in.functions[c.point].CallWithStack(in.ctx, in.stack[:])
	if c.cycle != nil {
		c.cycle.spent += clock() - began
	}
	if err != nil {
		return 0, in.explain(err)
	}
	return in.stack[0], nil
}

// explain shortens wazero's error, whose first line is the cause, and adds what the guest printed.
func (in *instance) explain(err error) error {
	if errors.Is(err, errDeadline) {
		return fmt.Errorf("it exceeded its deadline of %v", in.guest.settings.Deadline)
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	text = strings.TrimPrefix(strings.TrimSuffix(text, " (recovered by wazero)"), "wasm error: ")
	if printed := strings.TrimSpace(string(in.output.text)); printed != "" {
		text += ": " + strings.ToValidUTF8(printed, "")
	}
	return errors.New(text)
}

func (in *instance) close() { _ = in.mod.Close(context.Background()) }

// tail keeps the last part of what a guest prints, for its errors.
type tail struct{ text []byte }

const maxTail = 512

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p[max(0, len(p)-maxTail):]...)
	if over := len(t.text) - maxTail; over > 0 {
		t.text = bytes.Clone(t.text[over:])
	}
	return len(p), nil
}

// snapshot returns the cycle's snapshot. Guests that ask outside of a cycle see no nodes.
func (in *instance) snapshot() *framework.Snapshot {
	if c := in.call.cycle; c != nil && c.snapshot != nil {
		return c.snapshot
	}
	return &framework.Snapshot{}
}

func (in *instance) pod() *corev1.Pod {
	if in.call.cycle == nil {
		return nil
	}
	return in.call.cycle.pod
}

// podProto returns the encoded pod. A cycle encodes it once.
func (in *instance) podProto() []byte {
	c := in.call.cycle
	if c == nil || c.pod == nil {
		return nil
	}
	if c.podProto == nil {
		pod := c.pod
		if in.guest.settings.Local {
			pod = template(pod)
		}
		proto, err := encodePod(pod)
		in.must(err)
		c.podProto = proto
	}
	return c.podProto
}

// encodePod returns the pod in protobuf, without managedFields.
func encodePod(pod *corev1.Pod) ([]byte, error) {
	if pod.ManagedFields != nil {
		shown := *pod
		shown.ManagedFields = nil
		pod = &shown
	}
	return pod.Marshal()
}

// targetProto returns the encoded pod of addpod and removepod. Elsewhere it is the current pod.
func (in *instance) targetProto() []byte {
	if in.call.target == nil {
		return in.podProto()
	}
	proto, err := encodePod(in.call.target)
	in.must(err)
	return proto
}

func (in *instance) allNodes() *encodedNodes {
	in.mayLook()
	all, err := in.guest.encodings.all(in.snapshot())
	in.must(err)
	return all
}

// filteredNames returns the names of the feasible nodes in JSON.
func (in *instance) filteredNames() []byte {
	in.mayLook()
	names := make([]string, len(in.call.filtered))
	for i, n := range in.call.filtered {
		names[i] = n.Name()
	}
	out, err := json.Marshal(names)
	in.must(err)
	return out
}

// statuses returns the codes of the refusals by node, in JSON.
func (in *instance) statuses() []byte {
	codes := map[string]int{}
	if in.call.refusals != nil {
		for node, status := range in.call.refusals.All() {
			codes[node] = int(status.Code)
		}
	}
	out, err := json.Marshal(codes)
	in.must(err)
	return out
}

// scores returns the scores by node, in JSON.
func (in *instance) scores() []byte {
	scores := make(map[string]int64, len(in.call.raw))
	for i, n := range in.call.filtered {
		if i < len(in.call.raw) {
			scores[n.Name()] = in.call.raw[i]
		}
	}
	out, err := json.Marshal(scores)
	in.must(err)
	return out
}
