package settings

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/knarr-project/knarr/internal/kubelet/machine"
)

// Settings is a complete configuration: every field with a default has a value.
type Settings struct {
	kubeletconfig.KubeletConfiguration
	// from maps a field to the file that has it.
	from map[string]source
}

// source is the file of a field. If unset is true, the file has a zero value, which stands for the
// default: tools write it for fields that are not set.
type source struct {
	file  string
	unset bool
}

// Default returns the settings without any file.
func Default() *Settings {
	s := &Settings{}
	complete(s)
	return s
}

// Has reports whether a file sets the field. A zero value counts as not set.
func (s *Settings) Has(field string) bool { return s.from[field].file != "" && !s.from[field].unset }

// Source names the file that has the field, or returns "".
func (s *Settings) Source(field string) string { return s.from[field].file }

// Override records that a flag sets the field, over any file.
func (s *Settings) Override(field, flag string) {
	if s.from == nil {
		s.from = map[string]source{}
	}
	s.from[field] = source{file: flag}
}

// PodLimit is the largest number of pods on a machine with so many CPUs.
func (s *Settings) PodLimit(cpus int) int {
	most := int(s.MaxPods)
	if s.PodsPerCore > 0 {
		most = min(most, int(s.PodsPerCore)*cpus)
	}
	return most
}

// Reserved is the sum of kubeReserved and systemReserved. reservedSystemCPUs replaces its CPU.
func (s *Settings) Reserved() (corev1.ResourceList, error) {
	sum, err := Resources(s.KubeReserved)
	if err != nil {
		return nil, err
	}
	system, err := Resources(s.SystemReserved)
	for name, q := range system {
		have := sum[name]
		have.Add(q)
		sum[name] = have
	}
	if own, err := machine.ParseCPUs(s.ReservedSystemCPUs); err == nil && !own.Empty() {
		if sum == nil {
			sum = corev1.ResourceList{}
		}
		sum[corev1.ResourceCPU] = *resource.NewQuantity(int64(own.Len()), resource.DecimalSI)
	}
	return sum, err
}

// LogMaxSize is the size in bytes above which a container's log is rotated.
func (s *Settings) LogMaxSize() int64 {
	q, err := resource.ParseQuantity(s.ContainerLogMaxSize)
	if err != nil {
		return 10 << 20 // Validate refuses it
	}
	return q.Value()
}

// SetEvictionHard replaces the hard thresholds, as a flag does.
func (s *Settings) SetEvictionHard(thresholds map[string]string) {
	s.EvictionHard = thresholds
	completeEviction(&s.KubeletConfiguration)
}
