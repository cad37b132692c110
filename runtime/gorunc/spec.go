//go:build inprocess

package runc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/userns"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/selinux/go-selinux"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// readSpec reads a bundle's config.json. Paths in it are made absolute: libcontainer takes them as relative to the working directory,
// which in a shim is that of the pod's first container.
func readSpec(bundle string) (*specs.Spec, error) {
	content, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	var spec specs.Spec
	if err := json.Unmarshal(content, &spec); err != nil {
		return nil, fmt.Errorf("config.json of %s: %w", bundle, err)
	}
	if spec.Root == nil {
		return nil, fmt.Errorf("config.json of %s has no root", bundle)
	}
	if !filepath.IsAbs(spec.Root.Path) {
		spec.Root.Path = filepath.Join(bundle, spec.Root.Path)
	}
	for i := range spec.Mounts {
		if m := &spec.Mounts[i]; bind(m) && !filepath.IsAbs(m.Source) {
			m.Source = filepath.Join(bundle, m.Source)
		}
	}
	return &spec, nil
}

func bind(m *specs.Mount) bool {
	if m.Type == "bind" {
		return true
	}
	for _, option := range m.Options {
		if option == "bind" || option == "rbind" {
			return true
		}
	}
	return false
}

// newConfig is the container as libcontainer wants it.
func newConfig(id, bundle string, spec *specs.Spec, opts *CreateOpts) (*configs.Config, error) {
	rootless := os.Geteuid() != 0
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{
		CgroupName: id, NoPivotRoot: opts.NoPivot, NoNewKeyring: opts.NoNewKeyring, Spec: spec,
		RootlessEUID: rootless, RootlessCgroups: rootless || userns.RunningInUserNS(),
	})
	if err != nil {
		return nil, err
	}
	for i, label := range config.Labels {
		if strings.HasPrefix(label, "bundle=") {
			config.Labels[i] = "bundle=" + bundle
		}
	}
	return config, nil
}

// newProcess is a process as libcontainer wants it.
func newProcess(p *specs.Process) (*libcontainer.Process, error) {
	switch {
	case p == nil:
		return nil, errors.New("process property must not be empty")
	case !filepath.IsAbs(p.Cwd):
		return nil, errors.New("Cwd must be an absolute path")
	case len(p.Args) == 0:
		return nil, errors.New("args must not be empty")
	case p.SelinuxLabel != "" && !selinux.GetEnabled():
		return nil, errors.New("selinux label is specified in config, but selinux is disabled or not supported")
	}
	affinity, err := configs.ConvertCPUAffinity(p.ExecCPUAffinity)
	if err != nil {
		return nil, err
	}
	out := &libcontainer.Process{
		Args: p.Args, Env: p.Env, Cwd: p.Cwd, UID: int(p.User.UID), GID: int(p.User.GID), Label: p.SelinuxLabel,
		NoNewPrivileges: &p.NoNewPrivileges, AppArmorProfile: p.ApparmorProfile, Scheduler: p.Scheduler, IOPriority: p.IOPriority,
		CPUAffinity: affinity, LogLevel: strconv.Itoa(int(logrus.GetLevel())),
	}
	for _, gid := range p.User.AdditionalGids {
		out.AdditionalGroups = append(out.AdditionalGroups, int(gid))
	}
	if size := p.ConsoleSize; size != nil {
		out.ConsoleWidth, out.ConsoleHeight = uint16(size.Width), uint16(size.Height)
	}
	if c := p.Capabilities; c != nil {
		out.Capabilities = &configs.Capabilities{
			Bounding: c.Bounding, Effective: c.Effective, Inheritable: c.Inheritable, Permitted: c.Permitted, Ambient: c.Ambient,
		}
	}
	for _, limit := range p.Rlimits {
		number, known := rlimits[limit.Type]
		if !known {
			return nil, fmt.Errorf("wrong rlimit value: %s", limit.Type)
		}
		out.Rlimits = append(out.Rlimits, configs.Rlimit{Type: number, Hard: limit.Hard, Soft: limit.Soft})
	}
	return out, nil
}

// rlimits are the names of the OCI runtime specification (POSIX process, rlimits).
var rlimits = map[string]int{
	"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_DATA": unix.RLIMIT_DATA,
	"RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK,
	"RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE,
	"RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_RSS": unix.RLIMIT_RSS, "RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO,
	"RLIMIT_RTTIME": unix.RLIMIT_RTTIME, "RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_STACK": unix.RLIMIT_STACK,
}
