package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/cli/status"
	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
)

// Exit statuses of `knarr status` are those of systemctl, because scripts depend on them.
const (
	notHealthy = ExitStatus(1)
	notRunning = ExitStatus(3)
)

func statusCommand() *cobra.Command {
	var dataDir, output string
	cmd := &cobra.Command{
		Use: "status [NAME]", Short: "Show the state of a cluster and the next commands",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeNames,
		Long: "Shows how long a cluster has been running, the health of each part, addresses, use of memory and disk, pods,\n" +
			"and certificates that expire soon. Of a stopped cluster it shows since when it is stopped, and why. Without NAME it is the\n" +
			"cluster in /var/lib/knarr, or the only one that runs.\n\n" +
			"Exit status: 0 healthy, 1 a part is not healthy or the cluster is starting, 3 it does not run or there is none.",
		Example: "knarr status\nknarr status harbour -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return outputError(output, "json")
			}
			record, err := targetCluster(args, dataDir, cmd.Flags().Changed("data-dir"))
			if errors.Is(err, clusters.ErrNone) {
				fmt.Fprintln(cmd.ErrOrStderr(), "knarr:", err)
				return notRunning
			}
			if err != nil {
				return err
			}
			report := status.Collect(cmd.Context(), record, time.Now())
			report.Next = next(record, report)
			if output == "json" {
				err = printJSON(cmd.OutOrStdout(), report)
			} else {
				err = printStatus(cmd.OutOrStdout(), record, report)
			}
			switch {
			case err != nil:
				return err
			case !record.Alive():
				return notRunning
			case !report.Healthy:
				return notHealthy
			}
			return nil
		},
	}
	addDataDir(cmd, &dataDir)
	cmd.Flags().StringVarP(&output, "output", "o", "", "`FORMAT` of the output: json, instead of text")
	config.Enumerate(cmd.Flags().Lookup("output"), "json")
	return cmd
}

// next suggests the next commands.
func next(r *clusters.Record, report *status.Report) []string {
	name, folder := "", ""
	if r.DataDir != clusters.DefaultDataDir {
		name, folder = " "+r.Name, " --data-dir "+r.DataDir
	}
	if !r.Alive() {
		list := []string{startCommand(r), "knarr purge" + name}
		if r.Detached {
			list = append(list, "knarr logs"+name)
		}
		return list
	}
	var list []string
	if r.HasServer() {
		list = append(list, "knarr kubectl"+folder+" get pods -A")
	}
	if report.Pods != nil && report.Pods.Pending > 0 && r.HasServer() {
		list = append(list, "knarr kubectl"+folder+" get events -A --field-selector type=Warning")
	}
	if r.Detached {
		list = append(list, "knarr logs"+name+" -f")
	}
	return append(list, "knarr stop"+name)
}

func printStatus(out io.Writer, r *clusters.Record, report *status.Report) error {
	fmt.Fprintf(out, "%s: %s\n", r.Name, headline(r, report))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(table, "  %s\t%s\n", name, text)
		}
	}
	row("role", roleText(r))
	row("version", versionText(report))
	if report.Others != "" && report.Others != report.URL {
		row("API server", report.URL+"; for other machines "+report.Others)
	} else {
		row("API server", report.URL)
	}
	row("kubeconfig", report.Kubeconfig)
	if report.NodeName != "" {
		row("node", strings.TrimSpace(report.NodeName+" "+report.Address))
	}
	row("data folder", folderText(report))
	row("log", report.Log)
	if r.Alive() {
		row("memory", memoryText(report.Processes))
		row("pods", podsText(report))
	} else if report.Containers > 0 {
		row("pods", fmt.Sprintf("%d containers go on running; `knarr stop --pods %s` stops them", report.Containers, r.Name))
	}
	for _, part := range report.Parts {
		row(string(part.Health), part.Name+": "+part.Text)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(report.LogTail) > 0 {
		fmt.Fprintf(out, "the end of its log:\n  %s\n", strings.Join(report.LogTail, "\n  "))
	}
	_, err := fmt.Fprintf(out, "next:\n  %s\n", strings.Join(report.Next, "\n  "))
	return err
}

func headline(r *clusters.Record, report *status.Report) string {
	switch report.State {
	case clusters.Starting:
		return "starting since " + moment(r.Started)
	case clusters.Running:
		health := "healthy"
		if !report.Healthy {
			health = "NOT healthy"
		}
		return health + ", running since " + moment(r.Started)
	}
	return "does not run; it " + pastState(r)
}

func roleText(r *clusters.Record) string {
	text := map[string]string{
		"up": "server and node (knarr up)", "server": "control plane (knarr server)", "node": "worker (knarr node)",
		"apiserver": "API server alone", "kubelet": "node agent alone",
	}[r.Role]
	if r.Alive() {
		text += fmt.Sprintf(", process %d", r.PID)
		if r.Detached {
			text += " in the background"
		}
	}
	return text
}

func versionText(report *status.Report) string {
	text := report.Version + ", Kubernetes " + report.Kubernetes
	if report.Installed != "" {
		text += "; this program is " + report.Installed + ", which the next start uses"
	}
	return text
}

func folderText(report *status.Report) string {
	atLeast := ""
	if report.Disk.Partial {
		atLeast = "more than "
	}
	return fmt.Sprintf("%s, %s%s", report.DataDir, atLeast, status.Bytes(report.Disk.Folder))
}

func memoryText(processes []status.Process) string {
	var list []string
	for _, p := range processes {
		list = append(list, fmt.Sprintf("%s %s (%s private)", p.Name, status.Bytes(p.RSS), status.Bytes(p.Private)))
	}
	return strings.Join(list, ", ")
}

func podsText(report *status.Report) string {
	if report.Pods == nil {
		return ""
	}
	p := report.Pods
	var list []string
	for _, one := range []struct {
		n    int
		name string
	}{{p.Running, "running"}, {p.Pending, "pending"}, {p.Succeeded, "succeeded"}, {p.Failed, "failed"}} {
		if one.n > 0 {
			list = append(list, fmt.Sprintf("%d %s", one.n, one.name))
		}
	}
	if len(list) == 0 {
		list = []string{"none"}
	}
	text := strings.Join(list, ", ")
	if report.Nodes != nil {
		text += fmt.Sprintf("; nodes: %d of %d Ready", report.Nodes.Ready, report.Nodes.Total)
	}
	return text
}
