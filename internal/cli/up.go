package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/run"
	"github.com/knarr-project/knarr/internal/version"
)

// notAgain are flags that the record has fields for, or that are for one start only.
var notAgain = []string{"data-dir", "run-dir", "cgroup-root", "listen", "kubelet-listen", "node-name", "join", "token", "detach"}

func upCommand() *cobra.Command {
	return runCommand("up", "A whole cluster here: server and node; stays in the foreground",
		"Starts a server and a node on this machine and stays in the foreground. Ctrl-C stops knarr; pods keep running and are adopted by\n"+
			"the next `knarr up`. `knarr purge` stops them and removes everything.",
		config.Process|config.Server|config.Controlling|config.Node, true, run.Up)
}

func serverCommand() *cobra.Command {
	return runCommand("server", "The control plane only", "", config.Process|config.Server|config.Controlling|config.Joining, false, run.Server)
}

func nodeCommand() *cobra.Command {
	return runCommand("node", "A worker of a cluster (--join URL --token T)", "", config.Process|config.Node|config.Joining, true, run.Node)
}

// componentCommands are the single components, drop-in for upstream's.
func componentCommands() []*cobra.Command {
	list := []*cobra.Command{
		runCommand("apiserver", "The API server and its store alone", "", config.Process|config.Server, false, run.APIServer),
		runCommand("controllers", "The controllers alone (needs --kubeconfig)", "", config.Process|config.Controlling|config.ControllersAlone, false, run.Controllers),
		runCommand("scheduler", "The scheduler alone (needs --kubeconfig)", "", config.Process|config.SchedulerAlone, false, run.Scheduler),
		runCommand("kubelet", "The node agent alone (needs --kubeconfig)", "", config.Process|config.Node|config.NodeAlone, true, run.Kubelet),
		runCommand("proxy", "The service proxy alone (needs --kubeconfig)", "", config.Process|config.Node, true, run.Proxy),
	}
	return list
}

type runner func(ctx context.Context, p run.Params) error

func runCommand(use, short, long string, groups config.Groups, root bool, start runner) *cobra.Command {
	s := newSettings()
	var detach bool
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.NoArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if root {
			if err := needRoot(); err != nil {
				return err
			}
		}
		log, err := s.complete(cmd)
		if err != nil {
			return err
		}
		bg := inBackground(&s.out)
		if detach && !bg.on {
			return startInBackground(cmd.Context(), cmd, s.DataDir)
		}
		told := newTeller(cmd.OutOrStdout(), time.Now())
		told.remembered(s.remembered)
		return bg.ended(start(cmd.Context(), run.Params{
			Config: &s.Config, Log: log,
			Progress: func(component string, took time.Duration) {
				told.component(component, took)
				bg.log.Info("up", "component", component, "took", took.Round(time.Millisecond))
			},
			Settings: func() map[string]string { return config.Settings(cmd.Flags()) },
			Remark:   told.remark,
			Detached: bg.on, Flags: config.GivenFlags(cmd.Flags(), notAgain...),
			Held: func() error { return bg.open(s.DataDir, use, version.Current().Knarr) },
			Ready: func() {
				told.ready(&s.Config)
				bg.ready(time.Since(told.began))
			},
		}))
	}
	s.addFlags(cmd, groups)
	if groups&config.Server != 0 {
		cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return config.Explain(err) })
	}
	if canDetach(groups) {
		cmd.Flags().BoolVarP(&detach, "detach", "d", false, "run in the background: return when everything is ready; the log is DATA-DIR/knarr.log")
	}
	cmd.Flags().StringVar(&s.Kubeconfig, "kubeconfig", "", "how to reach the API server, for a component that runs alone")
	return cmd
}

// teller shows progress: one line a component, in the order they come up.
type teller struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
}

func newTeller(out io.Writer, began time.Time) *teller { return &teller{out: out, began: began} }

func (t *teller) component(name string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "  %-18s %6.3f s\n", name, took.Seconds())
}

// remark tells of something that is missing, though everything starts.
func (t *teller) remark(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(t.out, line)
}

// remembered tells which settings are those of the last start.
func (t *teller) remembered(flags []string) {
	if len(flags) > 0 {
		fmt.Fprintf(t.out, "  as at the last start: %s\n", strings.Join(flags, " "))
	}
}

func (t *teller) ready(c *config.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "ready in %.3f s, kubeconfig %s\n", time.Since(t.began).Seconds(), c.AdminKubeconfig())
}
