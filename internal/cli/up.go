package cli

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/run"
)

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
		told := newTeller(cmd.OutOrStdout(), time.Now())
		return start(cmd.Context(), run.Params{
			Config: &s.Config, Log: log, Progress: told.component,
			Settings: func() map[string]string { return config.Settings(cmd.Flags()) },
			Remark:   told.remark,
			Ready:    func() { told.ready(&s.Config) },
		})
	}
	s.addFlags(cmd, groups)
	if groups&config.Server != 0 {
		cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return config.Explain(err) })
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

func (t *teller) ready(c *config.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "ready in %.3f s, kubeconfig %s\n", time.Since(t.began).Seconds(), c.AdminKubeconfig())
}
