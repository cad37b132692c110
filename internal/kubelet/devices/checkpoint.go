package devices

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/knarr-project/knarr/internal/kubelet/checkpoint"
)

const (
	// checkpointName and the layout of the file are upstream's, because tools read it. The checksum
	// is our own.
	checkpointName = "kubelet_internal_checkpoint"
)

type checkpointData struct {
	PodDeviceEntries  []entry
	RegisteredDevices map[string][]string
}

// entry is one allocation. DeviceIDs are grouped by NUMA node; -1 stands for none. A device on two
// nodes is listed twice.
type entry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     map[string][]string
	AllocResp     []byte
}

// save writes the checkpoint.
func (m *Manager) save() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	return checkpoint.Write(filepath.Join(m.Dir, checkpointName), m.snapshot())
}

// snapshot returns the state to write.
func (m *Manager) snapshot() checkpointData {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := checkpointData{PodDeviceEntries: []entry{}, RegisteredDevices: map[string][]string{}}
	for name, r := range m.resources {
		if !r.removed {
			d.RegisteredDevices[name] = slices.Sorted(maps.Keys(r.devices))
		}
	}
	for uid, byContainer := range m.pods {
		for container, byResource := range byContainer {
			for name, a := range byResource {
				if a.response == nil {
					continue
				}
				raw, err := proto.Marshal(a.response)
				if err != nil {
					continue // it was unmarshalled before, so this does not happen
				}
				d.PodDeviceEntries = append(d.PodDeviceEntries, entry{string(uid), container, name, byNode(a), raw})
			}
		}
	}
	return d
}

func byNode(a *allocation) map[string][]string {
	out := map[string][]string{}
	for _, id := range a.devices {
		nodes := a.nodes[id]
		if len(nodes) == 0 {
			nodes = []int{-1}
		}
		for _, n := range nodes {
			key := strconv.Itoa(n)
			out[key] = append(out[key], id)
		}
	}
	return out
}

// load reads the checkpoint. Resources have no devices until their plugins register again.
func (m *Manager) load() {
	path := filepath.Join(m.Dir, checkpointName)
	var data checkpointData
	err := checkpoint.Read(path, &data)
	if errors.Is(err, os.ErrNotExist) {
		m.fresh = true
		return
	}
	if err != nil {
		m.Log.Error("cannot read the checkpoint of devices; it is put aside, and devices of running pods may be given to others", "file", path, "error", err)
		if err := os.Rename(path, path+".broken"); err != nil {
			m.Log.Error("cannot put the checkpoint of devices aside", "file", path, "error", err)
		}
		return
	}
	for name := range data.RegisteredDevices {
		if checkResource(name) == nil {
			m.resources[name] = &resourceState{devices: map[string]device{}, stopped: m.Now()}
		}
	}
	for _, e := range data.PodDeviceEntries {
		m.restore(e)
	}
}

func (m *Manager) restore(e entry) {
	a := &allocation{nodes: map[string][]int{}, response: &pluginapi.ContainerAllocateResponse{}}
	if err := proto.Unmarshal(e.AllocResp, a.response); err != nil {
		m.Log.Error("the checkpoint of devices has an allocation that cannot be read", "pod", e.PodUID, "container", e.ContainerName, "resource", e.ResourceName, "error", err)
		return
	}
	for key, ids := range e.DeviceIDs {
		node, err := strconv.Atoi(key)
		for _, id := range ids {
			if !slices.Contains(a.devices, id) {
				a.devices = append(a.devices, id)
			}
			if err == nil && node >= 0 {
				a.nodes[id] = append(a.nodes[id], node)
			}
		}
	}
	slices.Sort(a.devices)
	for _, nodes := range a.nodes {
		slices.Sort(nodes)
	}
	uid := types.UID(e.PodUID)
	if m.pods[uid] == nil {
		m.pods[uid] = containers{}
	}
	if m.pods[uid][e.ContainerName] == nil {
		m.pods[uid][e.ContainerName] = map[string]*allocation{}
	}
	m.pods[uid][e.ContainerName][e.ResourceName] = a
	if m.resources[e.ResourceName] == nil {
		m.resources[e.ResourceName] = &resourceState{devices: map[string]device{}, stopped: m.Now()}
	}
}
