package run

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/config"
)

// Level says how bad a finding is.
type Level int

const (
	Fine     Level = iota
	Degraded       // works, with something missing
	Broken         // a node does not work here
)

func (l Level) String() string { return [...]string{"ok", "degraded", "missing"}[l] }

// Finding is one thing that was looked at.
type Finding struct {
	Level  Level
	What   string
	Found  string
	Remedy string
}

// Doctor looks at what a node needs of this machine. It changes nothing.
func Doctor(cfg *config.Config) []Finding {
	return []Finding{
		checkRoot(), checkCapability(unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", Broken, "mounts and namespaces cannot be made: run on the machine itself or in a privileged container"),
		checkCapability(unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", Broken, "links and rules cannot be made: run on the machine itself or in a privileged container"),
		checkCapability(unix.CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE", Degraded, "the OOM score of pods cannot be lowered; grant the capability if guaranteed pods must survive longer"),
		checkCgroups(), checkOverlay(cfg), checkDisk(cfg), checkFile("/proc/sys/net/ipv4/ip_forward", "IP forwarding", Broken, "the kernel needs CONFIG_INET"),
		checkInotify(), checkPort("listen", cfg.Listen), checkPort("kubelet-listen", cfg.KubeletListen), checkRoute(),
	}
}

func checkRoot() Finding {
	if os.Geteuid() == 0 {
		return Finding{Fine, "root", "yes", ""}
	}
	return Finding{Broken, "root", fmt.Sprintf("running as user %d", os.Geteuid()), "run as root (sudo knarr …); a server alone (knarr server) needs none"}
}

func checkCapability(bit int, name string, level Level, remedy string) Finding {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return Finding{Degraded, name, err.Error(), ""}
	}
	if data[bit/32].Effective&(1<<(bit%32)) != 0 {
		return Finding{Fine, name, "yes", ""}
	}
	return Finding{level, name, "no", remedy}
}

func checkCgroups() Finding {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return Finding{Fine, "cgroups", "version 2", ""}
	}
	var missing []string
	for _, c := range []string{"cpu", "memory", "pids", "cpuset", "devices", "freezer"} {
		if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", c)); err != nil {
			missing = append(missing, c)
		}
	}
	if len(missing) == 0 {
		return Finding{Fine, "cgroups", "version 1", ""}
	}
	return Finding{Broken, "cgroups", "version 1 without " + strings.Join(missing, ", "), "mount the controllers below /sys/fs/cgroup, or boot with systemd.unified_cgroup_hierarchy=1"}
}

func checkOverlay(cfg *config.Config) Finding {
	data, err := os.ReadFile("/proc/filesystems")
	if err == nil && strings.Contains(string(data), "\toverlay\n") {
		return Finding{Fine, "overlayfs", "yes", ""}
	}
	return Finding{Degraded, "overlayfs", "not registered with the kernel", "modprobe overlay; without it image layers are copied"}
}

func checkDisk(cfg *config.Config) Finding {
	dir := cfg.DataDir
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" {
			break
		}
		dir = filepath.Dir(dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return Finding{Broken, "data folder", fmt.Sprintf("%s: %v", dir, err), "choose another one with --data-dir"}
	}
	free := float64(fs.Bavail) * float64(fs.Bsize)
	found := fmt.Sprintf("%s, %.1f GB free", cfg.DataDir, free/1e9)
	if free < 2e9 || free < 0.1*float64(fs.Blocks)*float64(fs.Bsize) {
		return Finding{Degraded, "data folder", found, "below 10 % or 2 GB: pods may be evicted for disk pressure; free some space or choose another folder with --data-dir"}
	}
	return Finding{Fine, "data folder", found, ""}
}

func checkFile(path, what string, level Level, remedy string) Finding {
	if _, err := os.Stat(path); err != nil {
		return Finding{level, what, err.Error(), remedy}
	}
	return Finding{Fine, what, "yes", ""}
}

func checkInotify() Finding {
	const least = 512
	data, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		return Finding{Degraded, "inotify", err.Error(), ""}
	}
	var n int
	if _, err := fmt.Sscan(string(data), &n); err == nil && n < least {
		return Finding{Degraded, "inotify", fmt.Sprintf("%d instances", n), fmt.Sprintf("sysctl fs.inotify.max_user_instances=%d: pods that watch files may fail", least)}
	}
	return Finding{Fine, "inotify", fmt.Sprintf("%d instances", n), ""}
}

func checkPort(flag, address string) Finding {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return Finding{Broken, "port " + address, err.Error(), "another cluster on this machine? choose another address with --" + flag}
	}
	_ = l.Close()
	return Finding{Fine, "port " + address, "free", ""}
}

func checkRoute() Finding {
	data, err := os.ReadFile("/proc/net/route")
	if err == nil {
		for _, line := range strings.Split(string(data), "\n") {
			if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "00000000" {
				return Finding{Fine, "default route", fields[0], ""}
			}
		}
	}
	return Finding{Degraded, "default route", "none", "pods reach no other network; a cluster on this machine works all the same"}
}
