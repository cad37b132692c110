// Package run builds every component of a process by hand, from one explicit list.
package run

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/knarr-project/knarr/internal/apiserver"
	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/cri"
	"github.com/knarr-project/knarr/internal/doctor"
	"github.com/knarr-project/knarr/internal/process"
)

// Params is what a command hands over.
type Params struct {
	Config   *config.Config
	Log      *slog.Logger
	Progress process.Progress
	// Settings are the values of all flags, for /flagz; nil: there is no such page.
	Settings func() map[string]string
	// Remark is told in one line what this machine lacks though everything starts; nil: it is
	// logged.
	Remark func(line string)
	// Held is called once the data folder is this process's, before anything starts; nil: nothing
	// is to be done then.
	Held func() error
	// Ready is called once, when everything is usable.
	Ready func()
	// Detached and Flags stand in the data folder's record: the process runs in the background, and
	// what was typed to start it.
	Detached bool
	Flags    []string
}

// Up runs a server and a node in one process.
func Up(ctx context.Context, p Params) error {
	return p.locked("up", doctor.Server|doctor.Node|doctor.Proxy, func(p Params) error {
		s, n := p.server(), p.nodeHere()
		n.server = s
		return p.control(ctx, []process.Phase{
			{{Name: "keys", Start: s.StartKeys}, {Name: "store", Start: s.StartStore}, {Name: "container runtime", Start: n.startRuntime}},
			{{Name: "API server", Start: s.StartAPI}},
			{{Name: "controllers", Start: s.StartControllers}, {Name: "scheduler", Start: s.StartScheduler}},
			append(n.parts(), process.Component{Name: "first objects", Start: s.AwaitFirstObjects}),
		})
	})
}

// Server runs the control plane alone.
func Server(ctx context.Context, p Params) error {
	if p.Config.Join != "" {
		return fmt.Errorf("server --join: a control plane of several servers is not supported yet; use an outside etcd (--store) with one server each")
	}
	return p.locked("server", doctor.Server, func(p Params) error {
		s := p.server()
		return p.control(ctx, []process.Phase{
			{{Name: "keys", Start: s.StartKeys}, {Name: "store", Start: s.StartStore}},
			{{Name: "API server", Start: s.StartAPI}},
			{{Name: "controllers", Start: s.StartControllers}, {Name: "scheduler", Start: s.StartScheduler}, {Name: "first objects", Start: s.AwaitFirstObjects}},
		})
	})
}

// APIServer runs the API server and its store alone.
func APIServer(ctx context.Context, p Params) error {
	return p.locked("apiserver", doctor.Server, func(p Params) error {
		s := p.server()
		s.Alone = true
		return p.control(ctx, []process.Phase{{{Name: "keys", Start: s.StartKeys}, {Name: "store", Start: s.StartStore}}, {{Name: "API server", Start: s.StartAPI}}, {{Name: "first objects", Start: s.AwaitFirstObjects}}})
	})
}

func (p Params) server() *controlplane.Server {
	return controlplane.New(controlplane.Options{Config: p.Config, Log: p.Log, Settings: p.Settings})
}

func (p Params) nodeHere() *worker {
	placeNode(p.Config)
	return &worker{cfg: p.Config, log: p.Log, settings: p.Settings}
}

// placeNode fills in where a node's sockets and cgroups are, unless they are set: apart from those
// of other data folders.
func placeNode(cfg *config.Config) {
	if cfg.RunDir == "" {
		cfg.RunDir = cri.DefaultRunDir(cfg.DataDir)
	}
	if cfg.CgroupRoot == "" {
		cfg.CgroupRoot = cri.DefaultCgroupRoot(cfg.DataDir)
	}
}

// control runs a process that has the API server in it. What that must know of the built-in kinds before its first write is parsed while keys and store wait
// for the disk.
func (p Params) control(ctx context.Context, phases []process.Phase) error {
	cel.BoundSharedEnvironments()
	var aside sync.WaitGroup
	aside.Go(apiserver.Prepare)
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
		theHeap.started()
		forgetProgram()
	}
	return process.Run(ctx, phases, p.Progress, ready, p.Log)
}

// examine refuses a machine that lacks what the roles need, and remarks on what it lacks besides.
func (p Params) examine(roles doctor.Role) error {
	placeNode(p.Config)
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
