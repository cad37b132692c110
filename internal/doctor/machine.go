package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/network"
	"github.com/knarr-project/knarr/internal/network/nft"
)

func effectiveUser() int { return os.Geteuid() }

func checkRoot(user int) Finding {
	const what = "root"
	if user == 0 {
		return Finding{Fine, what, "yes", ""}
	}
	return Finding{Broken, what, fmt.Sprintf("running as user %d", user), "run as root (sudo knarr …); a server alone (knarr server) does not need it"}
}

// capabilitySet holds a process's effective capabilities, one bit each.
type capabilitySet uint64

// capabilities reads those of this process. If the kernel does not tell, all are assumed.
func capabilities() capabilitySet {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return ^capabilitySet(0)
	}
	return capabilitySet(data[0].Effective) | capabilitySet(data[1].Effective)<<32
}

func (c capabilitySet) check(bit int, what string, level Level, remedy string) Finding {
	if c&(1<<bit) != 0 {
		return Finding{Fine, what, "yes", ""}
	}
	return Finding{level, what, "no", remedy}
}

func checkSysAdmin(c capabilitySet) Finding {
	return c.check(unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", Broken, "mounts and namespaces cannot be made: run on the machine itself or in a privileged container (docker run --privileged)")
}

func checkNetAdmin(c capabilitySet) Finding {
	return c.check(unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", Broken, "links and rules cannot be made: run on the machine itself or in a privileged container (docker run --privileged)")
}

func checkSysResource(c capabilitySet) Finding {
	return c.check(unix.CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE", Degraded, "the OOM score of pods cannot be lowered; grant the capability if guaranteed pods must survive longer")
}

func checkOverlay(filesystems string) Finding {
	const what = "overlayfs"
	data, err := os.ReadFile(filesystems)
	if err == nil && strings.Contains(string(data), "\toverlay\n") {
		return Finding{Fine, what, "yes", ""}
	}
	return Finding{Degraded, what, "not registered with the kernel", "modprobe overlay; without it image layers are copied"}
}

func checkForwarding(path string) Finding {
	const what = "IP forwarding"
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Finding{Broken, what, err.Error(), "pods need a kernel with CONFIG_INET, and /proc mounted"}
	case err != nil:
		return Finding{Degraded, what, err.Error(), "sysctl -w net.ipv4.ip_forward=1 on the host"}
	case strings.TrimSpace(string(data)) == "1":
		return Finding{Fine, what, "on", ""}
	}
	// knarr switches forwarding on if it can. /proc/sys is read-only in many containers.
	if unix.Access(path, unix.W_OK) != nil {
		return Finding{Degraded, what, "off, and cannot be switched on from here", "sysctl -w net.ipv4.ip_forward=1 on the host; until then pods reach nothing but their own node"}
	}
	return Finding{Fine, what, "off; knarr switches it on", ""}
}

// readGeneration sends nftables its smallest request.
func readGeneration() error {
	var g nft.Generations
	defer g.Close()
	_, err := g.Now()
	return err
}

func checkNftables(ask func() error) Finding {
	const what = "nftables"
	if err := ask(); err != nil {
		return Finding{Broken, what, err.Error(), "modprobe nf_tables, or use a kernel that has it: pods' network and Services are nftables rules"}
	}
	return Finding{Fine, what, "yes", ""}
}

// checkPodNetwork checks whether another cluster's pods use the links and rules of this network
// namespace.
func checkPodNetwork(cfg *config.Config) Finding {
	const what = "pod network"
	own := cfg.Path("network")
	owner, err := network.Owner()
	switch {
	case err != nil:
		return Finding{Degraded, what, err.Error(), "the links of this machine cannot be listed"}
	case owner == "":
		return Finding{Fine, what, "free", ""}
	case owner == own:
		return Finding{Fine, what, "of this cluster", ""}
	}
	return Finding{Broken, what, "the cluster whose data is in " + strings.TrimSuffix(owner, "/network") + " has its pod network here",
		"one machine has one node: purge that cluster (knarr purge --data-dir " + strings.TrimSuffix(owner, "/network") + "), or start this node in a network namespace of its own (unshare --net)"}
}

func checkInotify(path string) Finding {
	const (
		what  = "inotify"
		least = 512
	)
	data, err := os.ReadFile(path)
	if err != nil {
		return Finding{Degraded, what, err.Error(), "mount /proc: pods that watch files may fail"}
	}
	var n int
	if _, err := fmt.Sscan(string(data), &n); err == nil && n < least {
		return Finding{Degraded, what, fmt.Sprintf("%d instances", n), fmt.Sprintf("sysctl fs.inotify.max_user_instances=%d: pods that watch files may fail", least)}
	}
	return Finding{Fine, what, fmt.Sprintf("%d instances", n), ""}
}

func checkRoute(path string) Finding {
	const what = "default route"
	data, err := os.ReadFile(path)
	if err == nil {
		for line := range strings.Lines(string(data)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "00000000" {
				return Finding{Fine, what, fields[0], ""}
			}
		}
	}
	return Finding{Degraded, what, "none", "pods reach no other network; a cluster on this machine works all the same"}
}
