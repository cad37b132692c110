package cpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/checkpoint"
	"github.com/knarr-project/knarr/internal/kubelet/machine"
)

// entries maps pods and containers to exclusive CPUs.
type entries map[types.UID]map[string]machine.CPUSet

// state is the content of the checkpoint.
type state struct {
	policy  string
	pool    machine.CPUSet
	entries entries
}

// taken is the union of all entries.
func (s *state) taken() machine.CPUSet {
	var out machine.CPUSet
	for _, pod := range s.entries {
		for _, set := range pod {
			out = out.Union(set)
		}
	}
	return out
}

// file is the checkpoint's JSON form, as upstream's kubelet writes it.
type file struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      uint64                       `json:"checksum"`
}

// checksum is FNV-1a over a text form of the content, as upstream's kubelet computes it: the
// notation of github.com/davecgh/go-spew with upstream's names of types.
func (f *file) checksum() uint64 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, "(*state.CPUManagerCheckpoint){PolicyName:(string)"+f.PolicyName+" DefaultCPUSet:(string)"+f.DefaultCPUSet+
		" Entries:(map[string]map[string]string)"+dumpEntries(f.Entries)+" Checksum:(checksum.Checksum)0}")
	return uint64(h.Sum32())
}

func dumpEntries(all map[string]map[string]string) string {
	if all == nil {
		return "<nil>"
	}
	pods := make([]string, 0, len(all))
	for _, pod := range slices.Sorted(maps.Keys(all)) {
		containers := make([]string, 0, len(all[pod]))
		for _, name := range slices.Sorted(maps.Keys(all[pod])) {
			containers = append(containers, name+":"+all[pod][name])
		}
		pods = append(pods, pod+":map["+strings.Join(containers, " ")+"]")
	}
	return "map[" + strings.Join(pods, " ") + "]"
}

func (s *state) encode() []byte {
	f := file{PolicyName: s.policy, DefaultCPUSet: s.pool.String(), Entries: map[string]map[string]string{}}
	for pod, containers := range s.entries {
		f.Entries[string(pod)] = map[string]string{}
		for name, set := range containers {
			f.Entries[string(pod)][name] = set.String()
		}
	}
	f.Checksum = f.checksum()
	raw, _ := json.Marshal(f) // strings and numbers always have a JSON form
	return raw
}

func decode(raw []byte) (*state, error) {
	var f file
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	if sum := f.Checksum; sum != 0 && sum != f.checksum() {
		// An absent map and an empty one are equal in JSON, but not for the checksum.
		if f.Entries == nil {
			f.Entries = map[string]map[string]string{}
		}
		if sum != f.checksum() {
			return nil, errors.New("the checksum does not match the content")
		}
	}
	s := &state{policy: f.PolicyName, entries: entries{}}
	var err error
	if s.pool, err = machine.ParseCPUs(f.DefaultCPUSet); err != nil {
		return nil, fmt.Errorf("defaultCpuSet: %w", err)
	}
	for pod, containers := range f.Entries {
		s.entries[types.UID(pod)] = map[string]machine.CPUSet{}
		for name, list := range containers {
			set, err := machine.ParseCPUs(list)
			if err != nil {
				return nil, fmt.Errorf("entries[%.60q][%.60q]: %w", pod, name, err)
			}
			s.entries[types.UID(pod)][name] = set
		}
	}
	return s, nil
}

// manager begins the errors about the file.
const manager = "CPU manager"

// load reads the checkpoint. It returns nil if there is none.
func load(path string) (*state, error) { return checkpoint.LoadState(path, manager, decode) }

func (s *state) save(path string) error { return checkpoint.SaveState(path, manager, s.encode()) }
