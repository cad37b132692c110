package stats

import (
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// files writes a folder as the kernel shows one.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPressuresOfACgroupAreInTheSummary(t *testing.T) {
	dir := files(t, map[string]string{
		"cpu.pressure": "some avg10=1.50 avg60=0.25 avg300=0.10 total=12345\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=99\n",
		"io.pressure":  "some avg10=NaN avg60=x avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n",
	})
	s := readStalls(dir, ".pressure")
	want := &cgroups.PSIStats{Some: cgroups.PSIData{Avg10: 1.5, Avg60: .25, Avg300: .1, Total: 12345}, Full: cgroups.PSIData{Avg10: .5, Total: 99}}
	if !reflect.DeepEqual(s.cpu, want) || s.memory != nil || s.io == nil || s.io.Some.Avg10 != 0 || s.io.Full.Total != 3 {
		t.Errorf("%+v %+v %+v", s.cpu, s.memory, s.io)
	}
	var cpu statsapi.CPUStats
	memory := statsapi.MemoryStats{PSI: &statsapi.PSIStats{}}
	var disk *statsapi.IOStats
	reported := memory.PSI
	s.fill(metav1.Now(), usage{&cpu, &memory, &disk})
	if cpu.PSI == nil || cpu.PSI.Some.Total != 12345 || cpu.PSI.Full.Avg10 != .5 || memory.PSI != reported || disk == nil || disk.PSI.Some.Total != 7 {
		t.Errorf("%+v %+v %+v", cpu.PSI, memory.PSI, disk)
	}
	p := &page{}
	e := exported{p: p}
	e.pressure(&s)
	if text := string(p.families["container_pressure_cpu_waiting_seconds_total"].text); !strings.HasSuffix(text, "container_pressure_cpu_waiting_seconds_total 0.012345\n") {
		t.Error(text)
	}
	if p.families["container_pressure_memory_waiting_seconds_total"] != nil {
		t.Error("a pressure that the kernel does not count has a metric")
	}
}

func FuzzPSI(f *testing.F) {
	f.Add("some avg10=1.50 avg60=0.25 avg300=0.10 total=12345\n")
	f.Add("full total=\n=")
	f.Fuzz(func(_ *testing.T, text string) { parsePSI(text) })
}

func TestSwapOfACgroup(t *testing.T) {
	now := metav1.Now()
	for _, c := range []struct {
		name    string
		read    func(string, metav1.Time) *statsapi.SwapStats
		content map[string]string
		want    *statsapi.SwapStats
	}{
		{"v2 with a limit", swapV2, map[string]string{"memory.swap.current": "100\n", "memory.swap.max": "1000\n"}, &statsapi.SwapStats{Time: now, SwapUsageBytes: ptr(uint64(100)), SwapAvailableBytes: ptr(uint64(900))}},
		{"v2 without a limit", swapV2, map[string]string{"memory.swap.current": "100\n", "memory.swap.max": "max\n"}, &statsapi.SwapStats{Time: now, SwapUsageBytes: ptr(uint64(100))}},
		{"v2 that does not count swap", swapV2, nil, nil},
		{"v1 with a limit", swapV1, map[string]string{
			"memory.memsw.usage_in_bytes": "150", "memory.usage_in_bytes": "100", "memory.memsw.limit_in_bytes": "1000", "memory.limit_in_bytes": "800",
		}, &statsapi.SwapStats{Time: now, SwapUsageBytes: ptr(uint64(50)), SwapAvailableBytes: ptr(uint64(150))}},
		{"v1 without a limit", swapV1, map[string]string{
			"memory.memsw.usage_in_bytes": "150", "memory.usage_in_bytes": "160", "memory.memsw.limit_in_bytes": "9223372036854771712", "memory.limit_in_bytes": "800",
		}, &statsapi.SwapStats{Time: now, SwapUsageBytes: ptr(uint64(0))}},
		{"v1 that does not count swap", swapV1, map[string]string{"memory.usage_in_bytes": "100"}, nil},
	} {
		if got := c.read(files(t, c.content), now); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestMemoryOfACgroup(t *testing.T) {
	dir := files(t, map[string]string{
		"memory.stat":           "cache 1\nrss 2\ntotal_cache 10\ntotal_rss 20\ntotal_inactive_file 30\ntotal_active_file 40\ntotal_swap 5\ntotal_pgfault 7\nx y\n",
		"memory.usage_in_bytes": "100\n", "memory.max_usage_in_bytes": "200\n", "memory.failcnt": "3\n", "memory.kmem.usage_in_bytes": "50\n",
	})
	c := counters{Stats: &cgroups.Stats{MemoryStats: memoryV1(dir)}}
	want := memoryUse{usage: 100, peak: 200, workingSet: 70, rss: 20, cache: 10, swap: 5, kernel: 50, failures: 3, faults: 7, activeFile: 40, inactiveFile: 30}
	if got := c.memory(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestOpenFilesAndSocketsAreCounted(t *testing.T) {
	self, budget := []string{strconv.Itoa(os.Getpid())}, descriptorsOfAll
	before, sockets, ok := descriptors("/proc", self, &budget)
	if !ok || before == 0 {
		t.Fatal(before, ok)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if after, more, ok := descriptors("/proc", self, &budget); !ok || after <= before || more <= sockets {
		t.Errorf("%d files and %d sockets, before %d and %d", after, more, before, sockets)
	}
	if n, _, ok := descriptors("/proc", []string{"0"}, &budget); n != 0 || !ok {
		t.Error("a process that has ended has open files")
	}
	if limit, ok := openFilesLimit("/proc", self[0]); !ok || limit == 0 {
		t.Error(limit, ok)
	}
	proc := files(t, nil)
	if err := os.Mkdir(filepath.Join(proc, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "7", "limits"), []byte("Limit  Soft Limit  Hard Limit  Units\nMax open files            unlimited            unlimited            files\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if limit, ok := openFilesLimit(proc, "7"); !ok || limit != -1 {
		t.Error(limit, ok)
	}
}

func TestTooManyOpenFilesAreNotLookedAt(t *testing.T) {
	proc := t.TempDir()
	dir := filepath.Join(proc, "7", "fd")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range descriptorsAtMost + 1 {
		if err := os.Symlink("socket:[1]", filepath.Join(dir, strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	budget := descriptorsOfAll
	for range descriptorsOfAll / descriptorsAtMost {
		if files, sockets, ok := descriptors(proc, []string{"7"}, &budget); ok {
			t.Error(files, sockets)
		}
	}
	if _, _, ok := descriptors("/proc", []string{strconv.Itoa(os.Getpid())}, &budget); ok {
		t.Errorf("the budget is exceeded, %d are left", budget)
	}
}
