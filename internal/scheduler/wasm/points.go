package wasm

import (
	"fmt"
	"slices"

	"github.com/tetratelabs/wazero/api"
)

// point is a function that a guest may export.
type point int

const (
	enqueue point = iota
	preFilter
	filter
	postFilter
	preScore
	score
	normalizeScore
	reserve
	unreserve
	permit
	preBind
	bind
	postBind
	addPod
	removePod
	nodeVersion
	points // their number
)

// exports has the ABI: the export's name, its result, and the extension point's name in a
// SchedulerPlugin. Exports have no parameters.
var exports = [points]struct {
	name, extensionPoint string
	results              []api.ValueType
}{
	enqueue:        {"enqueue", "", nil},
	preFilter:      {"prefilter", "PreFilter", []api.ValueType{api.ValueTypeI32}},
	filter:         {"filter", "Filter", []api.ValueType{api.ValueTypeI32}},
	postFilter:     {"postfilter", "PostFilter", []api.ValueType{api.ValueTypeI64}},
	preScore:       {"prescore", "PreScore", []api.ValueType{api.ValueTypeI32}},
	score:          {"score", "Score", []api.ValueType{api.ValueTypeI64}},
	normalizeScore: {"normalizescore", "", []api.ValueType{api.ValueTypeI32}},
	reserve:        {"reserve", "Reserve", []api.ValueType{api.ValueTypeI32}},
	unreserve:      {"unreserve", "", nil},
	permit:         {"permit", "Permit", []api.ValueType{api.ValueTypeI64}},
	preBind:        {"prebind", "PreBind", []api.ValueType{api.ValueTypeI32}},
	bind:           {"bind", "Bind", []api.ValueType{api.ValueTypeI32}},
	postBind:       {"postbind", "PostBind", nil},
	addPod:         {"addpod", "", []api.ValueType{api.ValueTypeI32}},
	removePod:      {"removepod", "", []api.ValueType{api.ValueTypeI32}},
	// Not of upstream's ABI: the address of 8 bytes to which the host writes, before each call, the
	// version of the current node. See framework.NodeInfo.Version.
	nodeVersion: {"knarr_node_version", "", []api.ValueType{api.ValueTypeI32}},
}

func (p point) String() string { return exports[p].name }

// belongs are the exports that follow another one: they count where it does.
var belongs = map[point]point{normalizeScore: score, unreserve: reserve, addPod: preFilter, removePod: preFilter}

// exported checks the exports of a guest, and returns those that count. wanted are the names of
// extension points; none means all that the guest has.
func exported(functions map[string]api.FunctionDefinition, wanted []string) (has [points]bool, err error) {
	any := false
	for p := range points {
		f, ok := functions[exports[p].name]
		if !ok {
			continue
		}
		if len(f.ParamTypes()) > 0 || !slices.Equal(f.ResultTypes(), exports[p].results) {
			return has, fmt.Errorf("the export %s has the signature %s: %s is needed",
				p, signature(f.ParamTypes(), f.ResultTypes()), signature(nil, exports[p].results))
		}
		has[p] = true
		any = any || exports[p].extensionPoint != ""
	}
	if !any {
		return has, fmt.Errorf("the module exports no extension point, such as filter or score")
	}
	for _, name := range wanted {
		p := slices.IndexFunc(exports[:], func(e struct {
			name, extensionPoint string
			results              []api.ValueType
		}) bool {
			return e.extensionPoint == name
		})
		if p < 0 || !has[p] {
			return has, fmt.Errorf("the module does not export %s, which spec.points names", name)
		}
	}
	return has, nil
}

func signature(params, results []api.ValueType) string {
	text := "("
	for i, t := range params {
		if i > 0 {
			text += ", "
		}
		text += api.ValueTypeName(t)
	}
	text += ") -> ("
	for i, t := range results {
		if i > 0 {
			text += ", "
		}
		text += api.ValueTypeName(t)
	}
	return text + ")"
}
