//go:build inprocess

package runc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/userns"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/selinux/go-selinux"
	"github.com/sirupsen/logrus"
)

// readSpec reads a bundle's config.json and makes its paths absolute. libcontainer takes relative
// ones from the working directory, and a shim's is the bundle of the pod's first container.
func readSpec(bundle string) (*specs.Spec, error) {
	text, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	spec := new(specs.Spec)
	switch err := json.Unmarshal(text, spec); {
	case err != nil:
		return nil, fmt.Errorf("config.json of %s: %w", bundle, err)
	case spec.Root == nil:
		return nil, fmt.Errorf("config.json of %s has no root", bundle)
	}
	spec.Root.Path = within(bundle, spec.Root.Path)
	for i, mount := range spec.Mounts {
		if isBind(mount) {
			spec.Mounts[i].Source = within(bundle, mount.Source)
		}
	}
	return spec, nil
}

// within returns the path as seen from the bundle.
func within(bundle, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(bundle, path)
}

// isBind tells a bind mount by its type or its options: the specification allows either. The source
// of any other mount is not a path.
func isBind(mount specs.Mount) bool {
	return mount.Type == "bind" || slices.Contains(mount.Options, "bind") || slices.Contains(mount.Options, "rbind")
}

// bundleLabel begins the label from which libcontainer tells hooks the bundle.
const bundleLabel = "bundle="

// newConfig makes libcontainer's configuration of a container. The bundle's label replaces
// specconv's, which names the working directory.
func newConfig(id, bundle string, spec *specs.Spec, opts *CreateOpts) (*configs.Config, error) {
	unprivileged := os.Geteuid() != 0
	var config *configs.Config
	// specconv reads the mappings of a user namespace by a helper process, and waits for it.
	err := children.start(func() (err error) {
		config, err = specconv.CreateLibcontainerConfig(&specconv.CreateOpts{
			Spec:       spec,
			CgroupName: id,

			NoNewKeyring: opts.NoNewKeyring,
			NoPivotRoot:  opts.NoPivot,

			RootlessCgroups: unprivileged || userns.RunningInUserNS(),
			RootlessEUID:    unprivileged,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range config.Labels {
		if strings.HasPrefix(config.Labels[i], bundleLabel) {
			config.Labels[i] = bundleLabel + bundle
		}
	}
	return config, nil
}

// newProcess makes libcontainer's process. The first error found, in the order of this function,
// has runc's text.
func newProcess(spec *specs.Process) (*libcontainer.Process, error) {
	if err := checkProcess(spec); err != nil {
		return nil, err
	}
	cpus, err := configs.ConvertCPUAffinity(spec.ExecCPUAffinity)
	if err != nil {
		return nil, err
	}
	limits, err := rlimits(spec.Rlimits)
	if err != nil {
		return nil, err
	}
	process := &libcontainer.Process{
		Cwd:  spec.Cwd,
		Args: spec.Args,
		Env:  spec.Env,

		// Who it is, and what it may do.
		UID:              int(spec.User.UID),
		GID:              int(spec.User.GID),
		AdditionalGroups: groups(spec.User.AdditionalGids),
		Capabilities:     capabilities(spec.Capabilities),
		NoNewPrivileges:  &spec.NoNewPrivileges,
		Label:            spec.SelinuxLabel,
		AppArmorProfile:  spec.ApparmorProfile,

		// What it may use.
		Rlimits:     limits,
		CPUAffinity: cpus,
		Scheduler:   spec.Scheduler,
		IOPriority:  spec.IOPriority,

		LogLevel: strconv.Itoa(int(logrus.GetLevel())),
	}
	if console := spec.ConsoleSize; console != nil {
		process.ConsoleHeight, process.ConsoleWidth = uint16(console.Height), uint16(console.Width)
	}
	return process, nil
}

// checkProcess returns an error for a process that the specification does not allow, or this
// machine cannot run.
func checkProcess(spec *specs.Process) error {
	if spec == nil {
		return errors.New("process property must not be empty")
	}
	if !filepath.IsAbs(spec.Cwd) {
		return errors.New("Cwd must be an absolute path")
	}
	if len(spec.Args) == 0 {
		return errors.New("args must not be empty")
	}
	if spec.SelinuxLabel != "" && !selinux.GetEnabled() {
		return errors.New("selinux label is specified in config, but selinux is disabled or not supported")
	}
	return nil
}

func groups(gids []uint32) (out []int) {
	for _, gid := range gids {
		out = append(out, int(gid))
	}
	return out
}

func capabilities(spec *specs.LinuxCapabilities) *configs.Capabilities {
	if spec == nil {
		return nil
	}
	return &configs.Capabilities{
		Ambient:     spec.Ambient,
		Bounding:    spec.Bounding,
		Effective:   spec.Effective,
		Inheritable: spec.Inheritable,
		Permitted:   spec.Permitted,
	}
}

// rlimitNames are the specification's names of limits (POSIX process, rlimits) without "RLIMIT_",
// each at its number in Linux (include/uapi/asm-generic/resource.h), which amd64 and arm64 share.
var rlimitNames = []string{
	"CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE",
	"MEMLOCK", "AS", "LOCKS", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "RTTIME",
}

func rlimits(spec []specs.POSIXRlimit) (out []configs.Rlimit, err error) {
	for _, limit := range spec {
		name, prefixed := strings.CutPrefix(limit.Type, "RLIMIT_")
		number := slices.Index(rlimitNames, name)
		if !prefixed || number < 0 {
			return nil, fmt.Errorf("wrong rlimit value: %s", limit.Type)
		}
		out = append(out, configs.Rlimit{Type: number, Soft: limit.Soft, Hard: limit.Hard})
	}
	return out, nil
}
