package stats

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// ServeCadvisor serves /metrics/cadvisor: usage of the node's cgroups under cAdvisor's names. What
// the kernel does not count is left out.
func (c *Collector) ServeCadvisor(w http.ResponseWriter, r *http.Request) {
	p := &page{}
	failed := 0.0
	if err := c.rootGroup(p); err != nil {
		failed = 1
	}
	devices, budget := map[[2]uint64]string{}, descriptorsOfAll
	for _, g := range c.groups() {
		s := read(g.path, c.Now())
		if s == nil {
			continue
		}
		e := exportedAs(p, s.at, &g)
		e.cpu(s)
		e.memory(s)
		e.blocks(s, devices)
		e.pressure(&s.stalls)
		e.processes(s, &budget)
		e.spec(s, g.started)
		if g.network && len(s.procs) > 0 {
			e.network(filepath.Join("/proc", s.procs[0], "net/dev"))
		}
	}
	c.machine(p)
	p.add("container_scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise", failed, 0)
	p.write(w, r)
}

// exported writes the metrics of one cgroup.
type exported struct {
	p      *page
	at     int64
	labels string // as the page shows them
}

func exportedAs(p *page, at time.Time, g *group) exported {
	labels := appendLabels(nil, []string{"container", g.container, "id", g.path, "image", g.image, "name", g.id, "namespace", g.namespace, "pod", g.pod})
	return exported{p: p, at: at.UnixMilli(), labels: string(labels)}
}

func (e exported) gauge(name, help string, v float64, more ...string) {
	e.p.sample(name, "gauge", help, v, e.at, e.labels, more)
}

func (e exported) counter(name, help string, v float64, more ...string) {
	e.p.sample(name, "counter", help, v, e.at, e.labels, more)
}

func (e exported) cpu(s *counters) {
	u := &s.CpuStats.CpuUsage
	e.counter("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", float64(u.TotalUsage)/second, "cpu", "total")
	e.counter("container_cpu_user_seconds_total", "Cumulative user cpu time consumed in seconds.", float64(u.UsageInUsermode)/second)
	e.counter("container_cpu_system_seconds_total", "Cumulative system cpu time consumed in seconds.", float64(u.UsageInKernelmode)/second)
	if s.limit.quota > 0 {
		t := &s.CpuStats.ThrottlingData
		e.counter("container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.", float64(t.Periods))
		e.counter("container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.", float64(t.ThrottledPeriods))
		e.counter("container_cpu_cfs_throttled_seconds_total", "Total time duration the container has been throttled.", float64(t.ThrottledTime)/second)
		b := &s.CpuStats.BurstData
		e.counter("container_cpu_cfs_burst_periods_total", "Number of periods when burst occurs.", float64(b.BurstsPeriods))
		e.counter("container_cpu_cfs_burst_seconds_total", "Total time duration the container has been bursted.", float64(b.BurstTime)/second)
	}
}

func (e exported) memory(s *counters) {
	m := s.memory()
	e.gauge("container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed", float64(m.usage))
	e.gauge("container_memory_working_set_bytes", "Current working set in bytes.", float64(m.workingSet))
	e.gauge("container_memory_rss", "Size of RSS in bytes.", float64(m.rss))
	e.gauge("container_memory_total_active_file_bytes", "Current total active file in bytes.", float64(m.activeFile))
	e.gauge("container_memory_total_inactive_file_bytes", "Current total inactive file in bytes.", float64(m.inactiveFile))
	e.gauge("container_memory_cache", "Number of bytes of page cache memory.", float64(m.cache))
	e.gauge("container_memory_mapped_file", "Size of memory mapped files in bytes.", float64(m.mapped))
	e.gauge("container_memory_swap", "Container swap usage in bytes.", float64(m.swap))
	e.gauge("container_memory_kernel_usage", "Size of kernel memory allocated in bytes.", float64(m.kernel))
	e.gauge("container_memory_max_usage_bytes", "Maximum memory usage recorded in bytes", float64(m.peak))
	e.counter("container_memory_failcnt", "Number of memory usage hits limits", float64(m.failures))
	const help = "Cumulative count of memory allocation failures."
	e.counter("container_memory_failures_total", help, float64(m.faults), "failure_type", "pgfault", "scope", "hierarchy")
	e.counter("container_memory_failures_total", help, float64(m.majorFaults), "failure_type", "pgmajfault", "scope", "hierarchy")
	e.counter("container_oom_events_total", "Count of out of memory events observed for the container", float64(s.ooms))
}

// blocks writes reads and writes of block devices. A cgroup that has used none has a zero without a
// device.
func (e exported) blocks(s *counters, devices map[[2]uint64]string) {
	sum := func(entries []cgroups.BlkioStatEntry, op, name, help string) {
		seen := false
		for _, b := range entries {
			if strings.EqualFold(b.Op, op) {
				seen = true
				e.counter(name, help, float64(b.Value), "device", device(b.Major, b.Minor, devices))
			}
		}
		if !seen {
			e.counter(name, help, 0, "device", "")
		}
	}
	b := &s.BlkioStats
	sum(b.IoServiceBytesRecursive, "Read", "container_fs_reads_bytes_total", "Cumulative count of bytes read")
	sum(b.IoServiceBytesRecursive, "Write", "container_fs_writes_bytes_total", "Cumulative count of bytes written")
	sum(b.IoServicedRecursive, "Read", "container_fs_reads_total", "Cumulative count of reads completed")
	sum(b.IoServicedRecursive, "Write", "container_fs_writes_total", "Cumulative count of writes completed")
}

// deviceOf is the device of the file system of a path.
func deviceOf(path string) string {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return ""
	}
	return device(uint64(unix.Major(s.Dev)), uint64(unix.Minor(s.Dev)), map[[2]uint64]string{})
}

// device is the path of a block device.
func device(major, minor uint64, known map[[2]uint64]string) string {
	key := [2]uint64{major, minor}
	if name, ok := known[key]; ok {
		return name
	}
	number := strconv.FormatUint(major, 10) + ":" + strconv.FormatUint(minor, 10)
	name := number
	raw, _ := os.ReadFile("/sys/dev/block/" + number + "/uevent")
	for _, line := range strings.Split(string(raw), "\n") {
		if v, ok := strings.CutPrefix(line, "DEVNAME="); ok {
			name = "/dev/" + v
		}
	}
	known[key] = name
	return name
}

func (e exported) pressure(s *stalls) {
	for _, of := range []struct {
		name, long string
		psi        *cgroups.PSIStats
	}{{"cpu", "CPU", s.cpu}, {"memory", "memory", s.memory}, {"io", "IO", s.io}} {
		if of.psi == nil {
			continue
		}
		name := "container_pressure_" + of.name
		e.counter(name+"_waiting_seconds_total", "Total time duration tasks in the container have waited due to "+of.long+" congestion.", float64(of.psi.Some.Total)/1e6)
		e.counter(name+"_stalled_seconds_total", "Total time duration no tasks in the container could make progress due to "+of.long+" congestion.", float64(of.psi.Full.Total)/1e6)
	}
}

func (e exported) processes(s *counters, budget *int) {
	e.gauge("container_processes", "Number of processes running inside the container.", float64(len(s.procs)))
	e.gauge("container_threads", "Number of threads running inside the container", float64(s.PidsStats.Current))
	e.gauge("container_threads_max", "Maximum number of threads allowed inside the container, infinity if value is zero", float64(s.PidsStats.Limit))
	if len(s.procs) == 0 {
		return // a pod's own cgroup, and those of classes, have no processes
	}
	if files, sockets, ok := descriptors("/proc", s.procs, budget); ok {
		e.gauge("container_file_descriptors", "Number of open file descriptors for the container.", float64(files))
		e.gauge("container_sockets", "Number of open sockets for the container.", float64(sockets))
	}
	if limit, ok := openFilesLimit("/proc", s.procs[0]); ok {
		e.gauge("container_ulimits_soft", "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice", float64(limit), "ulimit", "max_open_files")
	}
}

func (e exported) spec(s *counters, started time.Time) {
	l := s.limit
	e.gauge("container_spec_cpu_period", "CPU period of the container.", float64(l.period))
	if l.quota > 0 {
		e.gauge("container_spec_cpu_quota", "CPU quota of the container.", float64(l.quota))
	}
	e.gauge("container_spec_cpu_shares", "CPU share of the container.", float64(l.shares))
	e.gauge("container_spec_memory_limit_bytes", "Memory limit for the container.", float64(l.memory))
	e.gauge("container_spec_memory_reservation_limit_bytes", "Memory reservation limit for the container.", float64(l.reservation))
	e.gauge("container_spec_memory_swap_limit_bytes", "Memory swap limit for the container.", float64(l.swap))
	if !started.IsZero() {
		e.gauge("container_start_time_seconds", "Start time of the container since unix epoch in seconds.", float64(started.Unix()))
	}
	e.gauge("container_last_seen", "Last time a container was seen by the exporter", float64(s.at.Unix()))
}

// network writes the interfaces of a pod's network, as one of its processes sees them.
func (e exported) network(path string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return
	}
	for _, i := range interfaces(string(raw)) {
		if i.name == "lo" || strings.HasPrefix(i.name, "veth") {
			continue
		}
		for _, d := range []struct {
			name, verb string
			at         int
		}{{"receive", "received", 0}, {"transmit", "transmitted", 8}} {
			name := "container_network_" + d.name
			e.counter(name+"_bytes_total", "Cumulative count of bytes "+d.verb, float64(i.counts[d.at]), "interface", i.name)
			e.counter(name+"_packets_total", "Cumulative count of packets "+d.verb, float64(i.counts[d.at+1]), "interface", i.name)
			e.counter(name+"_errors_total", "Cumulative count of errors encountered while "+d.verb, float64(i.counts[d.at+2]), "interface", i.name)
			e.counter(name+"_packets_dropped_total", "Cumulative count of packets dropped while "+d.verb, float64(i.counts[d.at+3]), "interface", i.name)
		}
	}
}

// rootGroup writes the usage of the whole node as the cgroup "/".
func (c *Collector) rootGroup(p *page) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	e := exportedAs(p, n.CPU.Time.Time, &group{path: "/"})
	machine := readStalls("/proc/pressure", "")
	e.pressure(&machine)
	if f := n.Rlimit; f != nil && f.NumOfRunningProcesses != nil {
		e.gauge("container_threads", "Number of threads running inside the container", float64(*f.NumOfRunningProcesses))
	}
	e.counter("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", float64(*n.CPU.UsageCoreNanoSeconds)/second, "cpu", "total")
	m := n.Memory
	e.gauge("container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed", float64(*m.UsageBytes))
	e.gauge("container_memory_working_set_bytes", "Current working set in bytes.", float64(*m.WorkingSetBytes))
	e.gauge("container_memory_rss", "Size of RSS in bytes.", float64(*m.RSSBytes))
	e.gauge("container_start_time_seconds", "Start time of the container since unix epoch in seconds.", float64(n.StartTime.Unix()))
	if f := n.Fs; f != nil && f.UsedBytes != nil {
		disk := deviceOf(c.RootDir)
		e.gauge("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", float64(*f.UsedBytes), "device", disk)
		e.gauge("container_fs_limit_bytes", "Number of bytes that can be consumed by the container on this filesystem.", float64(*f.CapacityBytes), "device", disk)
		e.gauge("container_fs_inodes_free", "Number of available Inodes", float64(*f.InodesFree), "device", disk)
		e.gauge("container_fs_inodes_total", "Number of Inodes", float64(*f.Inodes), "device", disk)
	}
	e.network("/proc/net/dev")
	return nil
}

// machine writes what the machine has.
func (c *Collector) machine(p *page) {
	m := &c.Machine
	labels := []string{"boot_id", m.BootID, "machine_id", m.MachineID, "system_uuid", m.SystemUUID}
	gauge := func(name, help string, v float64) { p.add(name, "gauge", help, v, 0, labels...) }
	cores, sockets := topology("/sys/devices/system/cpu")
	gauge("machine_cpu_cores", "Number of logical CPU cores.", float64(m.CPUs))
	gauge("machine_cpu_physical_cores", "Number of physical CPU cores.", float64(cores))
	gauge("machine_cpu_sockets", "Number of CPU sockets.", float64(sockets))
	gauge("machine_memory_bytes", "Amount of memory installed on the machine.", float64(m.Memory))
	gauge("machine_swap_bytes", "Amount of swap memory available on the machine.", float64(m.Swap))
	p.add("machine_scrape_error", "gauge", "1 if there was an error while getting machine metrics, 0 otherwise.", 0, 0)
	p.add("cadvisor_version_info", "gauge", "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.", 1, 0,
		"cadvisorRevision", "", "cadvisorVersion", "", "dockerVersion", "", "kernelVersion", m.Kernel, "osVersion", m.OSImage)
}

// topology counts the machine's cores and sockets; 0 if it does not tell.
func topology(dir string) (cores, sockets int) {
	all, _ := filepath.Glob(filepath.Join(dir, "cpu[0-9]*", "topology"))
	seenCores, seenSockets := map[string]bool{}, map[string]bool{}
	for _, t := range all {
		socket, err := os.ReadFile(filepath.Join(t, "physical_package_id"))
		core, err2 := os.ReadFile(filepath.Join(t, "core_id"))
		if err != nil || err2 != nil {
			continue
		}
		seenSockets[string(socket)] = true
		seenCores[string(socket)+"/"+string(core)] = true
	}
	return len(seenCores), len(seenSockets)
}
