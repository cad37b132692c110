package stats

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// stalls are the pressure stall information (PSI) of a cgroup or of the machine. What the kernel
// does not count is nil.
type stalls struct{ cpu, memory, io *cgroups.PSIStats }

// readStalls reads the files cpu, memory and io with a suffix: ".pressure" for the folder of a
// cgroup, "" for /proc/pressure.
func readStalls(dir, suffix string) stalls {
	of := func(resource string) *cgroups.PSIStats {
		raw, err := os.ReadFile(filepath.Join(dir, resource+suffix))
		if err != nil {
			return nil
		}
		return parsePSI(string(raw))
	}
	return stalls{of("cpu"), of("memory"), of("io")}
}

// parsePSI parses "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", and the same with "full".
func parsePSI(text string) *cgroups.PSIStats {
	out, found := &cgroups.PSIStats{}, false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var data *cgroups.PSIData
		switch fields[0] {
		case "some":
			data = &out.Some
		case "full":
			data = &out.Full
		default:
			continue
		}
		found = true
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			switch key {
			case "avg10":
				data.Avg10 = percent(value)
			case "avg60":
				data.Avg60 = percent(value)
			case "avg300":
				data.Avg300 = percent(value)
			case "total":
				data.Total, _ = strconv.ParseUint(value, 10, 64)
			}
		}
	}
	if !found {
		return nil
	}
	return out
}

// percent is a finite number, because JSON has no other ones.
func percent(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// pressureFolder is the folder of a cgroup that has its pressures. With cgroup v1 there is none,
// unless the runtime also uses the hierarchy of v2 beside it.
func pressureFolder(cgroup string) string {
	if cgroups.IsCgroup2UnifiedMode() {
		return filepath.Join(mountRoot, cgroup)
	}
	return filepath.Join(mountRoot, "unified", cgroup)
}

// summaryPSI converts to the type of /stats/summary. As upstream, the total has the kernel's unit,
// microseconds.
func summaryPSI(p *cgroups.PSIStats) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	data := func(d cgroups.PSIData) statsapi.PSIData {
		return statsapi.PSIData{Total: d.Total, Avg10: d.Avg10, Avg60: d.Avg60, Avg300: d.Avg300}
	}
	return &statsapi.PSIStats{Full: data(p.Full), Some: data(p.Some)}
}

// psi converts from the runtime's type.
func psi(p *runtimeapi.PsiStats) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	data := func(d *runtimeapi.PsiData) statsapi.PSIData {
		return statsapi.PSIData{Total: d.GetTotal(), Avg10: d.GetAvg10(), Avg60: d.GetAvg60(), Avg300: d.GetAvg300()}
	}
	return &statsapi.PSIStats{Full: data(p.Full), Some: data(p.Some)}
}

// usage are the parts of a summary that have pressures.
type usage struct {
	cpu    *statsapi.CPUStats
	memory *statsapi.MemoryStats
	io     **statsapi.IOStats
}

// fill sets the pressures that the runtime has not reported.
func (s stalls) fill(now metav1.Time, u usage) {
	if u.cpu != nil && u.cpu.PSI == nil {
		u.cpu.PSI = summaryPSI(s.cpu)
	}
	if u.memory != nil && u.memory.PSI == nil {
		u.memory.PSI = summaryPSI(s.memory)
	}
	if *u.io == nil && s.io != nil {
		*u.io = &statsapi.IOStats{Time: now, PSI: summaryPSI(s.io)}
	}
}

func ioStats(u *runtimeapi.IoUsage) *statsapi.IOStats {
	if u == nil || u.Psi == nil {
		return nil
	}
	return &statsapi.IOStats{Time: metav1.Unix(0, u.Timestamp), PSI: psi(u.Psi)}
}
