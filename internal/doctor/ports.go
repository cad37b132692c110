package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/clusters"
)

// LockFile is the file in a data folder that its running knarr process holds locked. It contains
// the pid.
const LockFile = "knarr.lock"

// Holder returns the pid of the process that runs on the data folder, or 0.
func Holder(dataDir string) int {
	path := filepath.Join(dataDir, LockFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 1 || !hasOpen(pid, path) {
		return 0 // it has ended; another process may have the pid now
	}
	return pid
}

// hasOpen reports whether a process has a file open. If this user may not check, it assumes so
// while the process lives.
func hasOpen(pid int, path string) bool {
	want, err := os.Stat(path)
	if err != nil {
		return false
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrPermission) {
		return true
	}
	for _, e := range entries {
		if have, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && os.SameFile(want, have) {
			return true
		}
	}
	return false
}

// checkPort checks that a TCP address can be listened on. It is fine if the data folder's own knarr
// listens there.
func checkPort(flag, address, dataDir string) Finding {
	what := "port " + address
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		_ = l.Close()
		return Finding{Fine, what, "free", ""}
	case errors.Is(err, unix.EADDRINUSE):
		return judgePort(flag, address, listener(address), Holder(dataDir))
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return Finding{Broken, what, "this machine does not have the address", "choose an address of this machine with --" + flag + " (ip address shows them)"}
	case errors.Is(err, unix.EACCES):
		return Finding{Broken, what, "not allowed to this user", "run as root, or choose a port above 1023 with --" + flag}
	}
	return Finding{Broken, what, err.Error(), "choose another address with --" + flag}
}

// judgePort describes a port on which the process pid listens. own is the process of the data
// folder. Either is 0 if unknown.
func judgePort(flag, address string, pid, own int) Finding {
	what := "port " + address
	remedy := "choose another address with --" + flag
	if pid == 0 {
		return Finding{Broken, what, "in use by a process that cannot be seen from here", remedy}
	}
	if pid == own {
		return Finding{Fine, what, fmt.Sprintf("in use by this cluster (process %d)", pid), ""}
	}
	if r, ok := clusters.Here().Listening(address); ok && r.PID == pid {
		return Finding{Broken, what, fmt.Sprintf("in use by the cluster %s (process %d, data folder %s)", r.Name, pid, r.DataDir), "`knarr stop " + r.Name + "`, or " + remedy}
	}
	return Finding{Broken, what, fmt.Sprintf("in use by process %d (%s)", pid, commandLine(pid)), "stop that process, or " + remedy}
}

// commandLine returns a process's command, shortened to fit a line.
func commandLine(pid int) string {
	const longest = 80
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	text := strings.TrimSpace(strings.ReplaceAll(string(data), "\x00", " "))
	switch {
	case err != nil || text == "":
		return "command unknown"
	case len(text) > longest:
		return text[:longest] + "…"
	}
	return text
}

// listener returns the process that listens on a TCP address, or on its port at a conflicting
// address. It returns 0 if the process is not visible.
func listener(address string) int {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return 0
	}
	sockets := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, inode := range listening(string(data), addr.Port()) {
			sockets["socket:["+inode+"]"] = true
		}
	}
	if len(sockets) == 0 {
		return 0
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && sockets[to] {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			return pid
		}
	}
	return 0
}

// listening returns the inodes of the sockets in a table of /proc/net that listen on the port.
func listening(table string, port uint16) []string {
	const stateListen = "0A"
	suffix := fmt.Sprintf(":%04X", port)
	var inodes []string
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 9 && f[3] == stateListen && strings.HasSuffix(f[1], suffix) {
			inodes = append(inodes, f[9])
		}
	}
	return inodes
}
