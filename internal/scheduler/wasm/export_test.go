package wasm

// OnlyNode returns a guest that allows one node.
func OnlyNode(name string) []byte {
	return assemble([]imported{{moduleScheduler, "result.node_names", write2}},
		defined{"prefilter", toI32, join(storeText(8, name), callImport(0, 8, int32(len(name))), constI32(0))})
}

// Trapping returns a guest whose filter traps.
func Trapping() []byte { return assemble(nil, defined{"filter", toI32, []byte{0}}) }

// Names for benchmarks of the whole scheduler.
var (
	Built       = built
	Unversioned = unversioned
	BenchNode   = benchNode
)

type (
	CompiledIn     = compiledIn
	CompiledInKept = compiledInKept
)
