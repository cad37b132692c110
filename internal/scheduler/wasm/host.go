package wasm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// The modules of the ABI.
const (
	moduleAPI       = "k8s.io/api"
	moduleScheduler = "k8s.io/scheduler"
	moduleKlog      = "k8s.io/klog"
)

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
)

// function is a host function. It panics on a guest's mistake; wazero returns that to the caller of
// the guest.
type function struct {
	module, name    string
	params, results int // all are i32
	call            func(in *instance, stack []uint64)
}

// functions are the host functions of the current ABI.
var functions = []function{
	{meterModule, meterName, 0, 1, func(in *instance, stack []uint64) { stack[0] = in.refuel() }},

	{moduleAPI, "node", 4, 1, func(in *instance, stack []uint64) {
		node := in.namedNode(stack)
		in.write(stack, 2, in.nodeProto(node))
	}},
	{moduleAPI, "nodeList", 2, 1, func(in *instance, stack []uint64) { in.write(stack, 0, in.allNodes().list) }},

	{moduleScheduler, "currentPod", 2, 1, func(in *instance, stack []uint64) { in.write(stack, 0, in.podProto()) }},
	{moduleScheduler, "targetPod", 2, 1, func(in *instance, stack []uint64) { in.write(stack, 0, in.targetProto()) }},
	{moduleScheduler, "currentNodeName", 2, 1, func(in *instance, stack []uint64) { in.writeText(stack, 0, in.call.node) }},
	{moduleScheduler, "filteredNodeList", 2, 1, func(in *instance, stack []uint64) { in.write(stack, 0, in.filteredNames()) }},
	{moduleScheduler, "nodeToStatusMap", 2, 1, func(in *instance, stack []uint64) { in.write(stack, 0, in.statuses()) }},
	{moduleScheduler, "nodeScoreList", 2, 1, func(in *instance, stack []uint64) { in.write(stack, 0, in.scores()) }},
	{moduleScheduler, "nodeImageStates", 4, 1, func(in *instance, stack []uint64) {
		states, err := in.allNodes().imageStates(in.namedNode(stack))
		in.must(err)
		in.write(stack, 2, states)
	}},
	{moduleScheduler, "get_config", 2, 1, func(in *instance, stack []uint64) { in.writeText(stack, 0, in.guest.settings.Config) }},

	{moduleScheduler, "result.status_reason", 2, 0, func(in *instance, stack []uint64) { in.call.reason = in.reason(stack) }},
	{moduleScheduler, "result.node_names", 2, 0, func(in *instance, stack []uint64) {
		in.call.nodeNames = split(in.read(stack, 0))
	}},
	{moduleScheduler, "result.nominated_node_name", 2, 0, func(in *instance, stack []uint64) { in.call.nominated = in.text(stack, 0, maxText) }},
	{moduleScheduler, "result.normalized_score_list", 2, 0, func(in *instance, stack []uint64) {
		in.call.normalized = nil
		in.must(json.Unmarshal(in.read(stack, 0), &in.call.normalized))
	}},
	{moduleScheduler, "result.cluster_events", 2, 0, func(in *instance, stack []uint64) { in.call.events = slices.Clone(in.read(stack, 0)) }},

	{moduleScheduler, "handle.eventrecorder.eventf", 2, 0, func(in *instance, stack []uint64) { in.record(in.read(stack, 0)) }},
	{moduleScheduler, "handle.reject_waiting_pod", 4, 0, func(in *instance, stack []uint64) {
		rejected := byte(0)
		if reject := in.guest.settings.Reject; reject != nil && reject(types.UID(in.text(stack, 0, maxText))) {
			rejected = 1
		}
		if uint32(stack[3]) >= 8 && !in.memory.Write(uint32(stack[2]), []byte{rejected, 0, 0, 0, 0, 0, 0, 0}) {
			panic(errOutside)
		}
	}},

	{moduleKlog, "log", 3, 0, func(in *instance, stack []uint64) { in.log(stack[0], in.text(stack, 1, maxText), nil) }},
	{moduleKlog, "logs", 5, 0, func(in *instance, stack []uint64) {
		in.log(stack[0], in.text(stack, 1, maxText), split([]byte(in.text(stack, 3, maxText))))
	}},
	{moduleKlog, "severity", 0, 1, func(in *instance, stack []uint64) { stack[0] = uint64(in.guest.settings.severity()) }},
}

// older are the functions of older guests, which have no ABI version either: they are known by
// their names and signatures. An older nodeList has the nodes that passed the filters.
var older = []function{
	{moduleAPI, "node", 2, 1, func(in *instance, stack []uint64) {
		node, _ := in.snapshot().Node(in.call.node)
		in.write(stack, 0, in.nodeProto(node))
	}},
	{moduleAPI, "nodeName", 2, 1, func(in *instance, stack []uint64) { in.writeText(stack, 0, in.call.node) }},
	{moduleAPI, "pod", 2, 1, func(in *instance, stack []uint64) { in.write(stack, 0, in.podProto()) }},
	{moduleAPI, "nodeList", 2, 1, func(in *instance, stack []uint64) {
		list, err := encodeList(in.call.filtered)
		in.must(err)
		in.write(stack, 0, list)
	}},
	{moduleAPI, "nodeToStatusMap", 2, 1, func(in *instance, stack []uint64) { in.write(stack, 0, in.statuses()) }},
}

// maxText is the maximum length of a guest's reason, name or log line. The rest is cut.
const maxText = 4 << 10

var errOutside = errors.New("it named bytes outside its memory")

// instantiate adds the host modules that a guest imports to the runtime.
func instantiate(ctx context.Context, runtime wazero.Runtime, guest wazero.CompiledModule) error {
	if err := instantiateWASI(ctx, runtime); err != nil {
		return err
	}
	provided := functions
	if isOlder(guest) {
		provided = slices.Concat(older, functions)
	}
	builders := map[string]wazero.HostModuleBuilder{}
	names := map[[2]string]function{}
	for _, f := range provided {
		key := [2]string{f.module, f.name}
		if _, ok := names[key]; ok {
			continue // the older one counts
		}
		names[key] = f
		if builders[f.module] == nil {
			builders[f.module] = runtime.NewHostModuleBuilder(f.module)
		}
		builders[f.module].NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
			in := ctx.(*instanceContext).in
			if in.memory == nil { // the guest's start function calls
				in.memory = mod.Memory()
			}
			f.call(in, stack)
		}), slices.Repeat([]api.ValueType{i32}, f.params), slices.Repeat([]api.ValueType{i32}, f.results)).Export(f.name)
	}
	for _, f := range guest.ImportedFunctions() {
		module, name, _ := f.Import()
		if _, ok := names[[2]string{module, name}]; !ok && module != wasi_snapshot_preview1.ModuleName {
			return fmt.Errorf("the module imports %s from %q, which the host does not have", name, module)
		}
	}
	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	return nil
}

// instantiateWASI adds WASI to the runtime. Its functions take as long as the guest says:
// random_get fills all of a memory, for one step of the guest. So each call looks at the deadline.
func instantiateWASI(ctx context.Context, runtime wazero.Runtime) error {
	compiled, err := wasi_snapshot_preview1.NewBuilder(runtime).Compile(ctx)
	if err != nil {
		return err
	}
	defer compiled.Close(ctx)
	builder := runtime.NewHostModuleBuilder(wasi_snapshot_preview1.ModuleName)
	for name, definition := range compiled.ExportedFunctions() {
		f, ok := definition.GoFunction().(api.GoModuleFunction)
		if !ok {
			return fmt.Errorf("the function %s of WASI is a %T", name, definition.GoFunction())
		}
		builder.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
			f.Call(ctx, mod, stack)
			ctx.(*instanceContext).in.refuel()
		}), definition.ParamTypes(), definition.ResultTypes()).Export(name)
	}
	_, err = builder.Instantiate(ctx)
	return err
}

// isOlder reports whether a guest was built for the older ABI.
func isOlder(guest wazero.CompiledModule) bool {
	return slices.ContainsFunc(guest.ImportedFunctions(), func(f api.FunctionDefinition) bool {
		module, name, _ := f.Import()
		return module == moduleAPI && (name == "pod" || name == "nodeName" || name == "node" && len(f.ParamTypes()) == 2)
	})
}

// must ends the guest's call with an error.
func (in *instance) must(err error) {
	if err != nil {
		panic(err)
	}
}

// write writes content to the buffer in stack[at], if it fits into the limit in stack[at+1]. The
// result is the content's length.
func (in *instance) write(stack []uint64, at int, content []byte) {
	in.moved(len(content)) // what does not fit was encoded, too
	buffer, limit := uint32(stack[at]), uint32(stack[at+1])
	if uint64(len(content)) <= uint64(limit) && len(content) > 0 && !in.memory.Write(buffer, content) {
		panic(errOutside)
	}
	stack[0] = uint64(uint32(len(content)))
}

func (in *instance) writeText(stack []uint64, at int, text string) {
	in.moved(len(text))
	buffer, limit := uint32(stack[at]), uint32(stack[at+1])
	if uint64(len(text)) <= uint64(limit) && len(text) > 0 && !in.memory.WriteString(buffer, text) {
		panic(errOutside)
	}
	stack[0] = uint64(uint32(len(text)))
}

// read returns the bytes at stack[at] with the length stack[at+1]. They are the guest's memory, so
// they change when the guest goes on.
func (in *instance) read(stack []uint64, at int) []byte {
	content, ok := in.memory.Read(uint32(stack[at]), uint32(stack[at+1]))
	if !ok {
		panic(errOutside)
	}
	in.moved(len(content))
	return content
}

// text returns a copy of a guest's text, cut to a length.
func (in *instance) text(stack []uint64, at, most int) string {
	content := in.read(stack, at)
	return strings.ToValidUTF8(string(content[:min(len(content), most)]), "")
}

// reason returns a reason. Guests give the same one for many nodes in a row.
func (in *instance) reason(stack []uint64) string {
	if string(in.read(stack, 0)) != in.said {
		in.said = in.text(stack, 0, maxText)
	}
	return in.said
}

// split returns the texts that NUL bytes end.
func split(content []byte) (texts []string) {
	for len(content) > 0 {
		end := slices.Index(content, 0)
		if end < 0 {
			end = len(content)
		}
		texts = append(texts, string(content[:end]))
		content = content[min(end+1, len(content)):]
	}
	return texts
}

// namedNode returns the node whose name is at stack[0], or nil.
func (in *instance) namedNode(stack []uint64) *framework.NodeInfo {
	name := in.read(stack, 0)
	if string(name) == in.call.node && in.call.info != nil {
		return in.call.info
	}
	in.mayLook()
	node, _ := in.snapshot().Node(string(name))
	return node
}

func (in *instance) nodeProto(node *framework.NodeInfo) []byte {
	if node == nil || node.Node == nil {
		return nil
	}
	proto, err := node.Proto()
	in.must(err)
	return proto
}

// severities of klog.
const (
	severityInfo = iota
	severityWarning
	severityError
)

func (in *instance) log(severity uint64, message string, values []string) {
	s := in.guest.settings
	if int32(severity) < s.severity() {
		return
	}
	level := slog.LevelError
	switch int32(severity) {
	case severityInfo:
		level = slog.LevelInfo
	case severityWarning:
		level = slog.LevelWarn
	}
	attrs := []any{"plugin", s.Name}
	for i := 0; i+1 < len(values); i += 2 {
		attrs = append(attrs, values[i], values[i+1])
	}
	s.Log.Log(context.Background(), level, strings.TrimSpace(message), attrs...)
}

// guestEvent is the JSON of handle.eventrecorder.eventf.
type guestEvent struct {
	RegardingReference, RelatedReference corev1.ObjectReference
	Eventtype, Reason, Action, Note      string
}

// record writes an event about the pod of the cycle. Events about other objects would let a guest
// speak in the scheduler's name about all of the cluster.
func (in *instance) record(content []byte) {
	var e guestEvent
	in.must(json.Unmarshal(content, &e))
	pod := in.pod()
	if e.RegardingReference.Kind != "Pod" || pod == nil || e.RegardingReference.Name != pod.Name || e.RegardingReference.Namespace != pod.Namespace {
		panic(fmt.Errorf("it wrote an event about %s %s/%s: only events about the pod of the cycle are allowed",
			e.RegardingReference.Kind, e.RegardingReference.Namespace, e.RegardingReference.Name))
	}
	if e.Eventtype != corev1.EventTypeNormal && e.Eventtype != corev1.EventTypeWarning {
		panic(fmt.Errorf("it wrote an event of the type %q: Normal and Warning are allowed", e.Eventtype))
	}
	if in.guest.settings.Events != nil {
		in.guest.settings.Events.Eventf(pod, nil, e.Eventtype, e.Reason, e.Action, "%s", e.Note)
	}
}
