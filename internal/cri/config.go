package cri

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultSandboxImage is the image of a pod's pause container. knarr builds it from the embedded
// program.
const DefaultSandboxImage = "registry.k8s.io/pause:3.10.2"

const (
	maxSocketPath     = 107 // sun_path without the terminating zero
	maxShimSocketPath = 42  // containerd appends a hash to this folder and refuses longer paths
)

// Config configures the included runtime. All fields but DataDir have defaults.
type Config struct {
	// DataDir is knarr's data folder. Programs are in DataDir/bin, images and snapshots in
	// DataDir/containerd.
	DataDir string
	// RunDir holds sockets and the state of running containers; default DefaultRunDir(DataDir). It
	// should not survive a reboot.
	RunDir string
	// SandboxImage is DefaultSandboxImage by default. It is pinned, so image garbage collection
	// keeps it.
	SandboxImage string
	// CNIConfDir is DataDir/cni/net.d by default. The first file in it, by name, configures the pod
	// network.
	CNIConfDir string
	// CNIBinDirs are searched for CNI plugins after the included programs; /opt/cni/bin by default.
	CNIBinDirs []string
	// Connection are the options of the connection to the runtime. Images is not used.
	Connection Options
	// RegistryDir holds HOST/hosts.toml files in containerd's format; default DataDir/registries.
	RegistryDir string
	// Mirrors are written into RegistryDir: registry host ("registry.k8s.io", "_default") → URLs to
	// try before the registry.
	Mirrors map[string][]string
	// Snapshotter is "overlayfs" if DataDir's filesystem supports it, otherwise "native".
	Snapshotter string
	// MemoryLimit is containerd's soft heap limit in bytes; 96 MiB by default.
	MemoryLimit int64
	Logger      *slog.Logger
}

// DefaultRunDir is /run/knarr/default for the default data folder. Every other data folder gets a
// sibling named by a hash, so that several clusters on one machine stay separate. No run folder is
// below another one, because a purge removes the whole folder.
func DefaultRunDir(dataDir string) string {
	dataDir = filepath.Clean(dataDir)
	if dataDir == defaultDataDir {
		return "/run/knarr/default"
	}
	return filepath.Join("/run/knarr", shortHash(dataDir))
}

// DefaultCgroupRoot is /knarr for the default data folder, and a sibling named by a hash for every
// other one.
func DefaultCgroupRoot(dataDir string) string {
	dataDir = filepath.Clean(dataDir)
	if dataDir == defaultDataDir {
		return "/knarr"
	}
	return "/knarr-" + shortHash(dataDir)
}

const defaultDataDir = "/var/lib/knarr"

func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// complete fills in the defaults and refuses invalid settings.
func (c Config) complete() (Config, error) {
	if c.DataDir == "" {
		return c, errors.New("container runtime: DataDir is empty")
	}
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return c, fmt.Errorf("container runtime: %w", err)
	}
	if c.RunDir == "" {
		c.RunDir = DefaultRunDir(c.DataDir)
	}
	if c.SandboxImage == "" {
		c.SandboxImage = DefaultSandboxImage
	}
	if c.CNIConfDir == "" {
		c.CNIConfDir = filepath.Join(c.DataDir, "cni", "net.d")
	}
	if c.CNIBinDirs == nil {
		c.CNIBinDirs = []string{"/opt/cni/bin"}
	}
	if c.RegistryDir == "" {
		c.RegistryDir = filepath.Join(c.DataDir, "registries")
	}
	if c.MemoryLimit == 0 {
		c.MemoryLimit = 96 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if len(c.socket()+".ttrpc") > maxSocketPath {
		return c, fmt.Errorf("container runtime: RunDir %q is too long for a socket's path (at most %d characters with the socket's name)", c.RunDir, maxSocketPath)
	}
	return c, nil
}

func (c Config) binDir() string    { return filepath.Join(c.DataDir, "bin") }
func (c Config) root() string      { return filepath.Join(c.DataDir, "containerd") }
func (c Config) state() string     { return filepath.Join(c.RunDir, "containerd") }
func (c Config) runcState() string { return filepath.Join(c.RunDir, "runc") }
func (c Config) socket() string    { return filepath.Join(c.RunDir, "containerd.sock") }

// configFile identifies the containerd of a run folder: it is in the process's arguments.
func (c Config) configFile() string { return filepath.Join(c.RunDir, "containerd.toml") }

func (c Config) logFile() string { return filepath.Join(c.DataDir, "log", "containerd.log") }

// shimSocketDir is the folder of the shims' sockets. If RunDir is too long, it is a short path
// derived from it.
func (c Config) shimSocketDir() string {
	if dir := filepath.Join(c.RunDir, "s"); len(dir) <= maxShimSocketPath {
		return dir
	}
	return filepath.Join("/run/knarr", "s-"+shortHash(c.RunDir))
}

// containerdConfig returns containerd's configuration file, version 4. It sets every path that
// containerd would otherwise share with other software of the machine (/run/containerd,
// /var/run/netns, /run/nri).
func (c Config) containerdConfig(snapshotter string, restrictOOMScore bool) string {
	binDirs := slices.Concat([]string{filepath.Join(c.binDir(), "current")}, c.CNIBinDirs)
	quoted := make([]string, len(binDirs))
	for i, dir := range binDirs {
		quoted[i] = fmt.Sprintf("%q", dir)
	}
	return fmt.Sprintf(`# Written by knarr at each start.
version = 4
root = %[1]q
state = %[2]q
imports = []

[plugins.'io.containerd.server.v1.grpc']
address = %[3]q

[plugins.'io.containerd.server.v1.ttrpc']
address = %[4]q

[plugins.'io.containerd.nri.v1.nri']
disable = true

[plugins.'io.containerd.shim.v1.manager']
socket_dir = %[5]q
# For runc; the shim sets its own. It is short: collecting its garbage as eagerly as containerd's own costs more than it gives.
env = ["GOGC=100", "GOMEMLIMIT=off"]

[plugins.'io.containerd.grpc.v1.cri']
disable_tcp_service = true
stream_server_address = '127.0.0.1'
stream_server_port = '0'

[plugins.'io.containerd.cri.v1.images']
snapshotter = %[6]q
stats_collect_period = 30

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = %[7]q

[plugins.'io.containerd.cri.v1.images'.registry]
config_path = %[8]q

[plugins.'io.containerd.cri.v1.runtime']
# How fast CPU time is used is computed between two questions. By default containerd asks every container's shim each second in case somebody will
# want to know, which is most of what an idle node costs.
stats_collect_period = '87600h'
restrict_oom_score_adj = %[9]t
netns_mounts_under_state_dir = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = [%[10]s]
conf_dir = %[11]q
use_internal_loopback = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
Root = %[12]q
SystemdCgroup = false

[plugins.'io.containerd.transfer.v1.local']
config_path = %[8]q

[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
platform = 'linux'
snapshotter = %[6]q
`, c.root(), c.state(), c.socket(), c.socket()+".ttrpc", c.shimSocketDir(), snapshotter, c.SandboxImage,
		c.RegistryDir, restrictOOMScore, strings.Join(quoted, ", "), c.CNIConfDir, c.runcState())
}

// writeMirrors writes one hosts.toml per mirrored registry into RegistryDir. It keeps files of
// other registries, which belong to the user.
func (c Config) writeMirrors() error {
	for host, mirrors := range c.Mirrors {
		var text strings.Builder
		text.WriteString("# Written by knarr at each start.\n")
		for _, mirror := range mirrors {
			fmt.Fprintf(&text, "\n[host.%q]\ncapabilities = ['pull', 'resolve']\n", strings.TrimSuffix(mirror, "/"))
		}
		dir := filepath.Join(c.RegistryDir, host)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("write registry mirrors: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text.String()), 0o644); err != nil {
			return fmt.Errorf("write registry mirrors: %w", err)
		}
	}
	return nil
}
