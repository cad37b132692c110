package machine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// CPU is one online logical CPU.
type CPU struct {
	ID int
	// Core is the lowest CPU of the same physical core.
	Core int
	// Socket is the physical package, as the kernel numbers it.
	Socket int
	// Node is the NUMA node.
	Node int
	// Cache is the lowest CPU that shares the last-level cache, which is the uncore cache.
	Cache int
}

// Node is one NUMA node.
type Node struct {
	ID   int
	CPUs CPUSet
	// Memory is the number of bytes of memory, with huge pages.
	Memory uint64
	// HugePages maps the size of a page in bytes to the number of reserved pages.
	HugePages map[uint64]uint64
	// Distances maps each node to its distance; 10 is the node itself.
	Distances map[int]int
}

// Layout describes the machine's online CPUs and its NUMA nodes by id.
type Layout struct {
	CPUs  map[int]CPU
	Nodes map[int]Node
}

// maxFile limits the size of the files that Read reads; the largest are the nodes' meminfo.
const maxFile = 1 << 20

// Read reads the layout below root, usually "/". A kernel without NUMA gives one node, 0, with all
// CPUs and the memory of /proc/meminfo.
func Read(root string) (*Layout, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("read the machine's layout: %w", err)
	}
	defer r.Close()
	l, err := reader{r}.layout()
	if err != nil {
		return nil, fmt.Errorf("read the machine's layout: %w", err)
	}
	return l, nil
}

// All is the set of online CPUs.
func (l *Layout) All() CPUSet {
	var s CPUSet
	for id := range l.CPUs {
		s.set(id)
	}
	return s
}

// Distances maps each node to its distances.
func (l *Layout) Distances() map[int]map[int]int {
	out := map[int]map[int]int{}
	for id, n := range l.Nodes {
		out[id] = n.Distances
	}
	return out
}

// HugePages sums the nodes' reserved huge pages, in bytes by size of a page.
func (l *Layout) HugePages() map[uint64]uint64 {
	out := map[uint64]uint64{}
	for _, n := range l.Nodes {
		for size, count := range n.HugePages {
			out[size] += size * count
		}
	}
	return out
}

// reader reads files of the kernel.
type reader struct{ root *os.Root }

const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
)

func (r reader) layout() (*Layout, error) {
	online, err := r.set(cpuDir + "/online")
	if err != nil {
		return nil, err
	}
	if online.Empty() {
		return nil, errors.New(cpuDir + "/online: no CPU is online")
	}
	l := &Layout{CPUs: map[int]CPU{}, Nodes: map[int]Node{}}
	if err := r.nodes(l, online); err != nil {
		return nil, err
	}
	nodeOf := map[int]int{}
	for id, n := range l.Nodes {
		for _, cpu := range n.CPUs.List() {
			nodeOf[cpu] = id
		}
	}
	for _, id := range online.List() {
		node, ok := nodeOf[id]
		if !ok {
			return nil, fmt.Errorf("CPU %d is in no NUMA node", id)
		}
		c, err := r.cpu(id, online)
		if err != nil {
			return nil, err
		}
		c.Node = node
		l.CPUs[id] = c
	}
	return l, nil
}

// cpu reads the core, socket and cache of one CPU.
func (r reader) cpu(id int, online CPUSet) (CPU, error) {
	dir := fmt.Sprintf("%s/cpu%d", cpuDir, id)
	c := CPU{ID: id, Core: id, Cache: online.First()}
	siblings, err := r.set(dir + "/topology/core_cpus_list")
	if errors.Is(err, fs.ErrNotExist) {
		siblings, err = r.set(dir + "/topology/thread_siblings_list") // the name before Linux 5.3
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	if siblings = siblings.And(online); !siblings.Empty() {
		c.Core = siblings.First()
	}
	if c.Socket, err = r.number(dir + "/topology/physical_package_id"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	c.Socket = max(c.Socket, 0) // some virtual machines say -1
	if shared, err := r.lastCache(dir); err != nil {
		return c, err
	} else if shared = shared.And(online); !shared.Empty() {
		c.Cache = shared.First()
	}
	return c, nil
}

// lastCache returns the CPUs that share the last-level cache with a CPU. Only level 3 and above
// count; a core's own caches are not an uncore cache.
func (r reader) lastCache(dir string) (CPUSet, error) {
	best, level := CPUSet{}, 2
	for i := range 16 {
		index := fmt.Sprintf("%s/cache/index%d", dir, i)
		n, err := r.number(index + "/level")
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return best, err
		}
		if n <= level {
			continue
		}
		shared, err := r.set(index + "/shared_cpu_list")
		if err != nil {
			return best, err
		}
		best, level = shared, n
	}
	return best, nil
}

// nodes reads the NUMA nodes that have CPUs or memory.
func (r reader) nodes(l *Layout, online CPUSet) error {
	ids, err := r.set(nodeDir + "/online")
	if errors.Is(err, fs.ErrNotExist) {
		n := Node{CPUs: online, HugePages: map[uint64]uint64{}, Distances: map[int]int{0: 10}}
		if n.Memory, err = r.memory("proc/meminfo"); err != nil {
			return err
		}
		l.Nodes[0] = n
		return r.hugePages("sys/kernel/mm/hugepages", n.HugePages)
	}
	if err != nil {
		return err
	}
	list := ids.List()
	for _, id := range list {
		dir := fmt.Sprintf("%s/node%d", nodeDir, id)
		n := Node{ID: id, HugePages: map[uint64]uint64{}, Distances: map[int]int{}}
		cpus, err := r.set(dir + "/cpulist")
		if err != nil {
			return err
		}
		n.CPUs = cpus.And(online)
		if n.Memory, err = r.memory(dir + "/meminfo"); err != nil {
			return err
		}
		if err := r.hugePages(dir+"/hugepages", n.HugePages); err != nil {
			return err
		}
		if err := r.distances(dir+"/distance", list, n.Distances); err != nil {
			return err
		}
		l.Nodes[id] = n
	}
	return nil
}

// distances reads one row of the distance table, which has one column for each online node.
func (r reader) distances(file string, ids []int, into map[int]int) error {
	text, err := r.text(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	columns := strings.Fields(text)
	if len(columns) != len(ids) {
		return fmt.Errorf("%s: %d distances for %d nodes", file, len(columns), len(ids))
	}
	for i, column := range columns {
		if into[ids[i]], err = strconv.Atoi(column); err != nil {
			return fmt.Errorf("%s: %q is not a distance", file, column)
		}
	}
	return nil
}

// memory reads the total of a meminfo file, in bytes.
func (r reader) memory(file string) (uint64, error) {
	text, err := r.text(file)
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(text, "\n") {
		_, value, ok := strings.Cut(line, "MemTotal:")
		if fields := strings.Fields(value); ok && len(fields) == 2 && fields[1] == "kB" {
			kib, err := strconv.ParseUint(fields[0], 10, 53)
			if err != nil {
				return 0, fmt.Errorf("%s: MemTotal is %.40q", file, fields[0])
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("%s: no line MemTotal", file)
}

// hugePages reads folders such as hugepages-2048kB/nr_hugepages.
func (r reader) hugePages(dir string, into map[uint64]uint64) error {
	d, err := r.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the kernel has none
	}
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(256)
	d.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, name := range names {
		text, ok := strings.CutPrefix(name, "hugepages-")
		text, isKB := strings.CutSuffix(text, "kB")
		kib, err := strconv.ParseUint(text, 10, 43)
		if !ok || !isKB || err != nil || kib == 0 {
			continue
		}
		count, err := r.number(path.Join(dir, name, "nr_hugepages"))
		if err != nil {
			return err
		}
		into[kib<<10] = uint64(max(count, 0))
	}
	return nil
}

func (r reader) set(file string) (CPUSet, error) {
	text, err := r.text(file)
	if err != nil {
		return CPUSet{}, err
	}
	s, err := ParseCPUs(text)
	if err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func (r reader) number(file string) (int, error) {
	text, err := r.text(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %.40q is not a number", file, text)
	}
	return n, nil
}

func (r reader) text(file string) (string, error) {
	f, err := r.root.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile))
	return strings.TrimSpace(string(raw)), err
}
