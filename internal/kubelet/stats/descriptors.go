package stats

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// descriptorsAtMost is how many open files of one cgroup are looked at for sockets. A pod that
// opens more must not make a scrape slow.
const descriptorsAtMost = 10_000

// descriptors counts the open files of a cgroup's processes, and the sockets among them. ok is
// false if not all could be counted.
func descriptors(proc string, pids []string) (files, sockets int, ok bool) {
	left := descriptorsAtMost
	for _, pid := range pids {
		dir := filepath.Join(proc, pid, "fd")
		f, err := os.Open(dir)
		if err != nil {
			continue // it has ended
		}
		names, _ := f.Readdirnames(left + 1)
		_ = f.Close()
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
