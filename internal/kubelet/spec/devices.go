package spec

import (
	"maps"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Devices is what a container needs to use its devices: what device plugins and drivers of dynamic
// resources have answered.
type Devices struct {
	// Envs come before the container's own variables, which override them.
	Envs        []*runtimeapi.KeyValue
	Mounts      []*runtimeapi.Mount
	Devices     []*runtimeapi.Device
	Annotations map[string]string
	CDI         []*runtimeapi.CDIDevice
}

// AddCDI adds a CDI device, once.
func (d *Devices) AddCDI(name string) {
	if !slices.ContainsFunc(d.CDI, func(have *runtimeapi.CDIDevice) bool { return have.Name == name }) {
		d.CDI = append(d.CDI, &runtimeapi.CDIDevice{Name: name})
	}
}

// apply adds the devices to the container's configuration.
func (d *Devices) apply(config *runtimeapi.ContainerConfig) {
	if d == nil {
		return
	}
	config.Envs = slices.Concat(d.Envs, config.Envs)
	config.Mounts = slices.Concat(d.Mounts, config.Mounts)
	config.Devices = append(config.Devices, d.Devices...)
	config.CDIDevices = append(config.CDIDevices, d.CDI...)
	annotations := maps.Clone(d.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, config.Annotations) // the node agent's own ones win
	config.Annotations = annotations
}
