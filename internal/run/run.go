// Package run builds every component of a process by hand, from one explicit list. In: a Params,
// the configuration and callbacks of a command. Out: one function per command; it returns when the
// process has ended.
package run

import (
	"context"
	"log/slog"
	"sync"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/cri"
	"github.com/knarr-project/knarr/internal/doctor"
	"github.com/knarr-project/knarr/internal/kubelet/settings"
	"github.com/knarr-project/knarr/internal/process"
)

// Params holds the parameters of a command.
type Params struct {
	Config   *config.Config
	Log      *slog.Logger
	Progress process.Progress
	// Settings returns the values of all flags for /flagz. If nil, the page does not exist.
	Settings func() map[string]string
	// Remark receives one line about what this machine lacks, although everything starts. If nil,
	// the line is logged.
	Remark func(line string)
	// Held is called once this process has locked the data folder, before anything starts. May be
	// nil.
	Held func() error
	// Ready is called once, when everything is usable.
	Ready func()
	// Restart ends the run, after which the process starts again with the installed program. If
	// nil, the process cannot be upgraded by a command elsewhere.
	Restart func()
	// Detached and Flags are for the data folder's record: whether the process runs in the
	// background, and the command line.
	Detached bool
	Flags    []string

	// nodeSettings are the settings of the node, if the process has one (readSettings).
	nodeSettings *settings.Settings
	// withNode means that a server's process includes a node.
	withNode bool
	// unsynced is for tests, whose stores need no durability and must not wait for a busy disk.
	unsynced bool
}

// Up runs a server and a node in one process.
func Up(ctx context.Context, p Params) error {
	if err := p.readSettings(); err != nil {
		return err
	}
	return p.locked("up", doctor.Server|doctor.Node|doctor.Proxy, func(p Params) error {
		p.withNode = true
		s, n := p.server(), p.nodeHere()
		n.server = s
		return p.control(ctx, []process.Phase{
			p.joining(),
			{{Name: "keys", Start: s.StartKeys}, {Name: "store", Start: s.StartStore}, {Name: "container runtime", Start: n.startRuntime}},
			{{Name: "API server", Start: s.StartAPI}},
			append(process.Phase{{Name: "leadership", Start: s.StartLeadership}}, n.reachServers()...),
			{{Name: "controllers", Start: s.StartControllers}, {Name: "scheduler", Start: s.StartScheduler}, {Name: "roles", Start: s.AwaitPolicy}},
			append(n.parts(), p.firstObjects(s)),
		})
	})
}

// Server runs the control plane alone.
func Server(ctx context.Context, p Params) error {
	return p.locked("server", doctor.Server, func(p Params) error {
		s := p.server()
		return p.control(ctx, []process.Phase{
			p.joining(),
			{{Name: "keys", Start: s.StartKeys}, {Name: "store", Start: s.StartStore}},
			{{Name: "API server", Start: s.StartAPI}},
			{{Name: "leadership", Start: s.StartLeadership}},
			{{Name: "controllers", Start: s.StartControllers}, {Name: "scheduler", Start: s.StartScheduler}, p.firstObjects(s)},
		})
	})
}

// APIServer runs the API server and its store alone.
func APIServer(ctx context.Context, p Params) error {
	return p.locked("apiserver", doctor.Server, func(p Params) error {
		s := p.server()
		s.Alone = true
		return p.control(ctx, []process.Phase{{{Name: "keys", Start: s.StartKeys}, {Name: "store", Start: s.StartStore}}, {{Name: "API server", Start: s.StartAPI}}, {p.firstObjects(s)}})
	})
}

func (p Params) server() *controlplane.Server {
	keepProgram(p.Config, p.Log)
	o := controlplane.Options{Config: p.Config, Log: p.Log, Settings: p.Settings, Restart: p.Restart, NodeHere: p.withNode, Unsynced: p.unsynced}
	o.Program, _ = installedProgram() // an upgrade says that it is unknown
	return controlplane.New(o)
}

func (p Params) nodeHere() *worker {
	setNodePaths(p.Config)
	return &worker{cfg: p.Config, log: p.Log, settings: p.nodeSettings, flagz: p.Settings, restart: p.Restart}
}

// setNodePaths sets the node's sockets and cgroups, unless they are configured. They are separate
// for each data folder.
func setNodePaths(cfg *config.Config) {
	if cfg.RunDir == "" {
		cfg.RunDir = cri.DefaultRunDir(cfg.DataDir)
	}
	if cfg.CgroupRoot == "" {
		cfg.CgroupRoot = cri.DefaultCgroupRoot(cfg.DataDir)
	}
}

// control runs a process that includes the API server. While keys and store wait for the disk, it
// parses the data about built-in kinds that the first write needs.
func (p Params) control(ctx context.Context, phases []process.Phase) error {
	cel.BoundSharedEnvironments()
	var aside sync.WaitGroup
	aside.Go(registry.Prepare)
	defer aside.Wait()
	return p.process(ctx, phases)
}

func (p Params) process(ctx context.Context, phases []process.Phase) error {
	cel.BoundSharedEnvironments()
	defer keepHeapSmall()()
	ready := func() {
		if p.Ready != nil {
			p.Ready()
		}
		heap.started()
		forgetProgram()
	}
	return process.Run(ctx, phases, p.Progress, ready, p.Log)
}

// examine refuses a machine that does not meet the roles' requirements, and remarks on minor
// defects.
func (p Params) examine(roles doctor.Role) error {
	setNodePaths(p.Config)
	if p.Config.RuntimeEndpoint != "" {
		roles &^= doctor.Runtime
	} else if roles&doctor.Node != 0 {
		roles |= doctor.Runtime
	}
	findings := doctor.Examine(p.Config, roles)
	if err := doctor.Refuse(findings); err != nil {
		return err
	}
	switch line := doctor.Remarks(findings); {
	case line == "":
	case p.Remark != nil:
		p.Remark(line)
	default:
		p.Log.Warn(line)
	}
	return nil
}
