// Compare runs the same load against upstream's Kubernetes and against knarr, one after the other
// on this machine, and prints the table of budgets with ratios. With -only it runs one side.
//
// run.sh builds upstream's side from the module k8s.io/kubernetes: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, kubelet. Its containers run in a separate instance of
// the containerd that knarr includes.
//
// Everything runs in its own network, mount and process namespaces (isolate.go), so that nothing is
// left behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

type options struct {
	knarr    string // path of the binary
	upstream string // folder of upstream's binaries
	state    string // folder for data, removed afterwards
	only     string
	skip     map[string]bool
	scale    float64
	out      string
	figures  string // folder for figures.json and the plots
	commit   string // of knarr, for figures.json
	release  string // of upstream, for figures.json
	keep     string // folder for the processes' logs
	// After each load of the control plane, keep profiles in the same folder and print the memory.
	profile bool
	stage   string // which of the three processes this is: see isolate.go
	cgroup  string // prefix of all cgroups

	scheduler bool   // run workloads of the scheduler
	workloads string // of the scheduler: only these
	nodes     string // of the scheduler: numbers of nodes
	terms     bool   // measure the terms of large clusters

	interchange bool   // run interchange instead of measuring
	layouts     string // of interchange: only these
	sailor      string // the program of interchange's containers
}

func main() {
	var o options
	var skip string
	flag.StringVar(&o.knarr, "knarr", "bin/knarr", "knarr's binary")
	flag.StringVar(&o.upstream, "upstream", "", "folder of upstream's binaries")
	flag.StringVar(&o.state, "state", "", "folder for data")
	flag.StringVar(&o.only, "only", "", "knarr or upstream: one side alone")
	flag.StringVar(&skip, "skip", "", "comma-separated systems or parts to skip: control (ready, requests, watch, lists, schedule), "+
		"crowd (idle, relist, overload, storm), definitions, several (members, requests3, watch3, kill, stop, controllers), node (pods)")
	flag.Float64Var(&o.scale, "scale", 1, "part of the usual length of each load")
	flag.StringVar(&o.out, "out", "", "file for the table (Markdown)")
	flag.StringVar(&o.figures, "figures", "", "folder for the figures (figures.json) and the plots drawn from them")
	flag.StringVar(&o.commit, "commit", "unknown", "knarr's commit, for figures.json")
	flag.StringVar(&o.release, "release", "unknown", "upstream's version, for figures.json")
	flag.StringVar(&o.keep, "logs", "", "folder for the processes' logs")
	flag.BoolVar(&o.profile, "profile", false, "after each load of the control plane print the memory, and keep "+
		"a heap profile and CPU profiles of requests in the folder of -logs")
	flag.StringVar(&o.stage, "stage", "", "set by the program itself")
	flag.StringVar(&o.cgroup, "cgroup", fmt.Sprintf("knarr-compare-%d", os.Getpid()), "set by the program itself")
	flag.BoolVar(&o.scheduler, "scheduler", false, "run the workloads of upstream's scheduler_perf instead")
	flag.StringVar(&o.workloads, "workloads", "", "comma-separated workloads of the scheduler; default: all")
	flag.StringVar(&o.nodes, "nodes", "", "comma-separated numbers of nodes: instead of the workloads, schedule plain pods on so many nodes")
	flag.BoolVar(&o.terms, "terms", false, "measure the costs of single objects and heartbeats instead, for docs/internals/scale.md")
	flag.BoolVar(&o.interchange, "interchange", false, "do not measure: run clusters with parts of both sides")
	flag.StringVar(&o.layouts, "layouts", "", "comma-separated layouts of interchange; default: all")
	flag.StringVar(&o.sailor, "sailor", "", "the program of interchange's containers")
	flag.Parse()
	o.skip = map[string]bool{}
	for _, key := range strings.Split(skip, ",") {
		o.skip[key] = true
	}
	code, err := o.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		code = 1
	}
	os.Exit(code)
}

func (o *options) run() (int, error) {
	switch o.stage {
	case stageInit:
		return first()
	case stageMeasure:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if o.interchange {
			return 0, interchange(ctx, o)
		}
		switch {
		case o.scheduler:
			return 0, compareScheduler(ctx, o)
		case o.terms:
			return 0, terms(ctx, o)
		}
		return 0, compare(ctx, o)
	case stageReaders:
		return 0, readers(context.Background())
	}
	return isolate(o)
}

// compare measures the sides one after the other and prints the table.
func compare(ctx context.Context, o *options) error {
	results := map[string]figures{}
	var sides []side
	if o.only != "knarr" {
		sides = append(sides, &upstream{bin: o.upstream, knarr: o.knarr, cgroup: "/" + o.cgroup + "-upstream"})
	}
	if o.only != "upstream" {
		sides = append(sides, &knarr{bin: o.knarr, cgroup: "/" + o.cgroup + "-knarr"})
	}
	var failures []error
	for _, s := range sides {
		f := figures{}
		if err := measure(ctx, o, s, f); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", s.name(), err))
		}
		results[s.name()] = f
	}
	table := render(results)
	fmt.Print(table)
	if o.figures != "" {
		failures = append(failures, keep(record(o, results), o.figures))
	}
	if o.out != "" {
		failures = append(failures, os.WriteFile(o.out, []byte(table), 0o644))
	}
	return errors.Join(failures...)
}

// side is one of the two systems.
type side interface {
	name() string
	// startControl starts the control plane on an empty folder and returns when /readyz says ok.
	startControl(ctx context.Context, dir string) (*cluster, error)
	// startNode starts a control plane and a node on an empty folder and returns when /readyz says
	// ok. It does not wait for the node.
	startNode(ctx context.Context, dir string) (*cluster, error)
	// startSeveral starts a control plane of three members on an empty folder and returns when each
	// of them is ready.
	startSeveral(ctx context.Context, dir string) (*cluster, error)
	// size returns the bytes of all binaries.
	size() (int64, error)
}

// cluster is a running system.
type cluster struct {
	kubeconfig string
	control    []*process    // processes of the control plane, if it is not one of members
	members    []*member     // of a control plane of several servers
	began      time.Time     // start of the first of them
	started    time.Duration // time until /readyz said ok
	stop       func()
}

// nodeName is the name of the node on both sides.
const nodeName = "compare"
