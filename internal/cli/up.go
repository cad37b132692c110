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
var notAgain = []string{"data-dir", "run-dir", "cgroup-root", "listen", "kubelet-listen", "node-name", "peer-listen", "join", "token", "token-file", "detach"}

func upCommand() *cobra.Command { return upWith(run.Up) }

// upWith returns the command with another function in place of the start.
func upWith(start runner) *cobra.Command {
	cmd := runCommand("up", "Start a cluster on this machine: a server and a node", "Starts a server and a node on this machine and stays in the foreground. Ctrl-C stops knarr; the pods keep\n"+
		"running, and the next `knarr up` adopts them. `knarr purge` stops them and removes everything.",
		config.Process|config.Server|config.Controlling|config.Node|config.Joining, true, start,
		"data-dir", "config", "join", "token-file", "listen", "advertise-address", "tls-san", "node-name", "node-labels", "kubelet-config", "pod-cidr", "service-cidr", "cluster-domain",
		"registry-hosts", "log-level")
	cmd.Example = "sudo knarr up\n" +
		"sudo knarr up --detach --data-dir /srv/one --listen 0.0.0.0:7443\n" +
		"sudo knarr up --config /etc/knarr.yaml"
	return cmd
}

func serverCommand() *cobra.Command { return serverWith(run.Server) }

// serverWith returns the command with another function in place of the start.
func serverWith(start runner) *cobra.Command {
	cmd := runCommand("server", "Start a control plane without a node", "Starts the store, the API server, the controllers and the scheduler, and stays in the foreground. Other machines\n"+
		"join as nodes: `knarr token create` here, then `knarr node` there. Machines with `knarr token create --server` join as\n"+
		"further servers: `knarr server --join`. It needs no root.",
		config.Process|config.Server|config.Controlling|config.Joining, false, start,
		"data-dir", "config", "join", "token-file", "node-name", "listen", "peer-listen", "advertise-address", "tls-san", "store", "pod-cidr", "service-cidr", "cluster-domain", "node-port-range", "log-level")
	cmd.Example = "knarr server --data-dir ~/cluster\nknarr server --tls-san cluster.example.com\n" +
		"knarr server --join https://10.0.0.5:6443 --token-file FILE"
	return cmd
}

func nodeCommand() *cobra.Command { return nodeWith(run.Node) }

// nodeWith returns the command with another function in place of the start.
func nodeWith(start runner) *cobra.Command {
	cmd := runCommand("node", "Join this machine to a cluster as a node", "Starts the node agent, the container runtime, the pod network, the service proxy and DNS, and joins the cluster of\n"+
		"the server at --join. `knarr token create` on the server makes the token. It stays in the foreground.",
		config.Process|config.Node|config.Joining, true, start,
		"join", "token-file", "token", "data-dir", "config", "node-name", "node-ip", "node-labels", "kubelet-config", "advertise-address", "kubelet-listen", "registry-hosts", "max-pods", "log-level")
	cmd.Example = "sudo knarr node --join https://10.0.0.5:6443 --token-file FILE"
	return cmd
}

// componentCommands returns the commands for single components, which are drop-in replacements of
// upstream's.
func componentCommands() []*cobra.Command {
	const process = config.Process
	stays := " It stays in the foreground."
	return []*cobra.Command{
		runCommand("apiserver", "Start only the API server and its store", "Starts the API server with its store. It takes the command line that kubeadm, kind or kubespray write for\n"+
			"kube-apiserver; a flag that it does not have is an error that says what to do instead."+stays,
			process|config.Server, false, run.APIServer,
			"data-dir", "config", "listen", "advertise-address", "tls-san", "service-cidr", "store", "store-ca", "store-cert", "store-key",
			"client-ca-file", "authorization-mode", "enable-admission-plugins", "audit-policy-file", "log-level"),
		runCommand("controllers", "Start only the controllers", "Starts the controllers against the API server of --kubeconfig, in place of kube-controller-manager. Of several,\n"+
			"the holder of the lease kube-system/kube-controller-manager works."+stays,
			process|config.Controlling|config.ControllersAlone, false, run.Controllers,
			"kubeconfig", "data-dir", "config", "pod-cidr", "use-service-account-credentials", "root-ca-file", "service-account-private-key-file",
			"cluster-signing-cert-file", "cluster-signing-key-file", "bind-address", "secure-port", "log-level"),
		runCommand("scheduler", "Start only the scheduler", "Starts the scheduler against the API server of --kubeconfig, in place of kube-scheduler. Of several, the holder of\n"+
			"the lease kube-system/kube-scheduler works. --config takes upstream's KubeSchedulerConfiguration, or a file of\n"+
			"knarr's own; the kind decides."+stays,
			process|config.SchedulerAlone, false, run.Scheduler, "kubeconfig", "data-dir", "config", "bind-address", "secure-port", "tls-cert-file", "tls-private-key-file", "log-level"),
		runCommand("kubelet", "Start only the node agent, with runtime and pod network", "Starts the node agent, the container runtime and the pod network against the API server of --kubeconfig, in place\n"+
			"of upstream's kubelet. --config takes upstream's KubeletConfiguration, or a file of knarr's own; the kind decides."+stays,
			process|config.Node|config.NodeAlone, true, run.Kubelet,
			"kubeconfig", "network-kubeconfig", "data-dir", "config", "config-dir", "node-name", "node-labels", "advertise-address", "kubelet-listen", "pod-cidr", "service-cidr", "cluster-domain", "log-level"),
		runCommand("proxy", "Start only the service proxy", "Starts the service proxy of a node against the API server of --kubeconfig, in place of kube-proxy."+stays,
			process|config.ProxyAlone, true, run.Proxy),
	}
}

type runner func(ctx context.Context, p run.Params) error

// runCommand makes a command that runs components until a signal ends it. --help shows the settings
// in shown.
func runCommand(use, short, long string, groups config.Groups, root bool, start runner, shown ...string) *cobra.Command {
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
		progress := newProgressPrinter(cmd.OutOrStdout(), time.Now())
		progress.remembered(s.remembered)
		again := newRestart(cmd.Context())
		defer again.cancel()
		return again.after(bg, start(again.ctx, run.Params{
			Restart: again.ask,
			Config:  &s.Config, Log: log,
			Progress: func(component string, took time.Duration) {
				progress.component(component, took)
				bg.log.Info("up", "component", component, "took", took.Round(time.Millisecond))
			},
			Settings: func() map[string]string { return config.Settings(cmd.Flags()) },
			Remark:   progress.remark,
			Detached: bg.on, Flags: config.GivenFlags(cmd.Flags(), notAgain...),
			Held: func() error { return bg.open(s.DataDir, use, version.Current().Knarr) },
			Ready: func() {
				progress.ready(&s.Config)
				bg.ready(time.Since(progress.began))
			},
		}))
	}
	s.addFlags(cmd, groups, shown...)
	if canDetach(groups) {
		cmd.Flags().BoolVarP(&detach, "detach", "d", false, "run in the background, with the log in DATA-DIR/knarr.log")
		onlyOnCommandLine(cmd, "detach")
	}
	return cmd
}

// progressPrinter shows progress: one line per component, in the order of their start.
type progressPrinter struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
}

func newProgressPrinter(out io.Writer, began time.Time) *progressPrinter {
	return &progressPrinter{out: out, began: began}
}

func (t *progressPrinter) component(name string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "  %-18s %6.3f s\n", name, took.Seconds())
}

// remark shows a minor defect that does not prevent the start.
func (t *progressPrinter) remark(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(t.out, line)
}

// remembered shows the settings that come from the last start.
func (t *progressPrinter) remembered(flags []string) {
	if len(flags) > 0 {
		fmt.Fprintf(t.out, "  as at the last start: %s\n", strings.Join(flags, " "))
	}
}

func (t *progressPrinter) ready(c *config.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "ready in %.3f s, kubeconfig %s\n", time.Since(t.began).Seconds(), c.AdminKubeconfig())
}
