package wasm

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// FuzzMeter checks that a module that was valid is valid after the rewriting, and that no input
// makes the rewriting panic.
func FuzzMeter(f *testing.F) {
	f.Add(assemble(nil, defined{"filter", toI32, join(forever, constI32(0))}))
	f.Add(assemble([]imported{{moduleScheduler, "result.status_reason", write2}}, defined{"filter", toI32, join(callImport(0, 1, 2), constI32(2))}))
	f.Add(assemble(nil, defined{"score", toI64, join(constI32(0), constI32(0), constI32(9), []byte{0xfc, 10, 0, 0}, constI64(1))}))
	f.Fuzz(func(t *testing.T, module []byte) {
		out, err := meter(module)
		if err != nil {
			return
		}
		ctx := t.Context()
		r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(16))
		defer r.Close(ctx)
		if _, err := r.CompileModule(ctx, module); err != nil {
			return
		}
		if _, err := r.CompileModule(ctx, out); err != nil {
			t.Errorf("the module is valid, but not with the counter: %v", err)
		}
	})
}

// passing returns a guest with an export for each host function, which passes its parameters on.
func passing() (module []byte, called []function) {
	bySignature := map[[2]int]int{{2, 1}: read2, {2, 0}: write2, {4, 1}: read4, {4, 0}: write4, {3, 0}: write3, {5, 0}: write5, {0, 1}: toI32}
	var imports []imported
	exports := []defined{{"filter", toI32, constI32(0)}}
	for _, f := range functions {
		if f.module == meterModule {
			continue
		}
		signature := bySignature[[2]int{f.params, f.results}]
		var code []byte
		for i := range f.params {
			code = append(code, 0x20, byte(i)) // local.get
		}
		code = append(code, 0x10, byte(len(imports)))
		imports = append(imports, imported{f.module, f.name, signature})
		exports = append(exports, defined{"pass " + f.name, signature, code})
		called = append(called, f)
	}
	return assemble(imports, exports...), called
}

// FuzzHost calls the host functions with the numbers and the memory of a hostile guest.
func FuzzHost(f *testing.F) {
	for i := range byte(len(functions)) {
		f.Add(i, uint32(0), uint32(16), uint32(64), uint32(1<<16-64), uint32(8), []byte(`{"node0":1}`))
		f.Add(i, uint32(1<<32-1), uint32(1<<32-1), uint32(1<<32-1), uint32(1<<32-1), uint32(1<<32-1), []byte("node0\x00node1"))
	}
	module, called := passing()
	host := NewHost()
	g, err := host.Compile(context.Background(), module, Settings{Name: "guest", Config: "config"})
	if err != nil {
		f.Fatal(err)
	}
	p := plugin{g}
	snapshot := nodes(map[string]string{"a": "b"}, nil)
	f.Fuzz(func(t *testing.T, which byte, a, b, c, d, e uint32, memory []byte) {
		function := called[int(which)%len(called)]
		cycle := p.pool.begin(snapshot, podInfo("pod", nil).Pod)
		defer cycle.End()
		cycle.mu.Lock()
		defer cycle.mu.Unlock()
		if err := p.pool.take(cycle); err != nil {
			t.Fatal(err)
		}
		in := cycle.instance
		in.mod.Memory().Write(0, memory)
		in.call = call{cycle: cycle, node: "node0", info: snapshot.Nodes.At(0), filtered: []*framework.NodeInfo{snapshot.Nodes.At(0), snapshot.Nodes.At(1)}, raw: []int64{1, 2}, refusals: &scheduler.Refusals{}}
		var args []uint64
		for _, n := range []uint32{a, b, c, d, e}[:function.params] {
			args = append(args, uint64(n))
		}
		_, err := in.mod.ExportedFunction("pass "+function.name).Call(in.ctx, args...)
		var bug runtime.Error
		if errors.As(err, &bug) || err != nil && strings.Contains(err.Error(), "runtime error") {
			t.Errorf("%s panicked: %v", function.name, err)
		}
		if err != nil {
			p.pool.drop(cycle)
		}
	})
}
