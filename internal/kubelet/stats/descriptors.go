package stats

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// descriptorsAtMost and descriptorsOfAll are how many open files of one cgroup, and of all in one
// scrape, are looked at for sockets. Pods that open more must not make a scrape slow.
const descriptorsAtMost, descriptorsOfAll = 10_000, 50_000

// descriptors counts the open files of a cgroup's processes, and the sockets among them. Each file
// lowers the budget of the scrape by one. ok is false if some files could not be counted.
func descriptors(proc string, pids []string, budget *int) (files, sockets int, ok bool) {
	left := min(descriptorsAtMost, *budget)
	for _, pid := range pids {
		dir := filepath.Join(proc, pid, "fd")
		f, err := os.Open(dir)
		if err != nil {
			continue // it has ended
		}
		names, _ := f.Readdirnames(left + 1)
		_ = f.Close()
		*budget -= len(names)
		if left -= len(names); left < 0 {
			return 0, 0, false
		}
		files += len(names)
		for _, name := range names {
			if to, err := os.Readlink(filepath.Join(dir, name)); err == nil && strings.HasPrefix(to, "socket:") {
				sockets++
			}
		}
	}
	return files, sockets, true
}

// openFilesLimit is a process's soft limit of open files; -1 means unlimited.
func openFilesLimit(proc, pid string) (int64, bool) {
	raw, err := os.ReadFile(filepath.Join(proc, pid, "limits"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(raw)) {
		rest, found := strings.CutPrefix(line, "Max open files")
		if f := strings.Fields(rest); found && len(f) > 0 {
			if f[0] == "unlimited" {
				return -1, true
			}
			n, err := strconv.ParseInt(f[0], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
