package node

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Machine describes the capacity and the software of the node's computer.
type Machine struct {
	CPUs                              int
	Memory                            int64 // bytes
	Disk                              int64 // bytes of the filesystem of the root folder
	Swap                              int64
	HugePages                         map[string]int64 // size ("2Mi") → bytes
	MachineID, SystemUUID, BootID     string
	Kernel, OSImage, Architecture, OS string
}

// ReadMachine inspects this computer.
func ReadMachine(rootDir string) (Machine, error) {
	m := Machine{CPUs: runtime.NumCPU(), Architecture: runtime.GOARCH, OS: runtime.GOOS, HugePages: map[string]int64{}}
	info, err := MemInfo()
	if err != nil {
		return m, err
	}
	m.Memory, m.Swap = info["MemTotal"], info["SwapTotal"]
	var fs unix.Statfs_t
	if err := unix.Statfs(rootDir, &fs); err != nil {
		return m, err
	}
	m.Disk = int64(fs.Blocks) * fs.Bsize
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return m, err
	}
	m.Kernel = string(bytes.TrimRight(uts.Release[:], "\x00"))
	m.OSImage = osImage()
	m.MachineID = firstFile("/etc/machine-id", "/var/lib/dbus/machine-id")
	m.SystemUUID = firstFile("/sys/class/dmi/id/product_uuid", "/proc/device-tree/vm,uuid", "/etc/machine-id")
	m.BootID = firstFile("/proc/sys/kernel/random/boot_id")
	hugePages(m.HugePages)
	return m, nil
}

// Capacity returns the machine's capacity as node resources.
func (m Machine) Capacity(maxPods int) corev1.ResourceList {
	out := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(m.CPUs), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(m.Memory, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(m.Disk, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(maxPods), resource.DecimalSI),
	}
	for size, bytes := range m.HugePages {
		out[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size)] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	return out
}

// MemInfo reads /proc/meminfo. Values are in bytes.
func MemInfo() (map[string]int64, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			continue
		}
		if len(f) == 3 {
			n *= 1024
		}
		out[strings.TrimSuffix(f[0], ":")] = n
	}
	return out, nil
}

func firstFile(paths ...string) string {
	for _, p := range paths {
		if raw, err := os.ReadFile(p); err == nil {
			if s := strings.TrimSpace(strings.TrimRight(string(raw), "\x00")); s != "" {
				return s
			}
		}
	}
	return ""
}

func osImage() string {
	raw, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "Linux"
	}
	for _, line := range strings.Split(string(raw), "\n") {
		if v, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(v, `"`)
		}
	}
	return "Linux"
}

func hugePages(into map[string]int64) {
	const dir = "/sys/kernel/mm/hugepages"
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(firstFile(dir+"/"+e.Name()+"/nr_hugepages"), 10, 64)
		if err != nil {
			continue
		}
		into[resource.NewQuantity(kb*1024, resource.BinarySI).String()] = n * kb * 1024
	}
}
