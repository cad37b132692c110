package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/run"
)

func stopCommand() *cobra.Command {
	var dataDir string
	var pods bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "stop [NAME]", Short: "Stop a cluster; its pods keep running", Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeNames,
		Long: "Ends the process of a cluster as Ctrl-C does, and waits for its end. Pods keep running, and the next start of the\n" +
			"cluster adopts them. With --pods they are stopped too, within 30 seconds, and the next start starts them again.\n" +
			"Nothing is removed: `knarr purge` does that.",
		Example: "sudo knarr stop\nsudo knarr stop harbour --pods",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := targetCluster(args, dataDir, cmd.Flags().Changed("data-dir"))
			if err != nil {
				return err
			}
			if err := stopCluster(cmd.Context(), cmd.OutOrStdout(), r, timeout); err != nil {
				return err
			}
			if pods {
				return stopPods(cmd.Context(), cmd.OutOrStdout(), r)
			}
			return printStopped(cmd.OutOrStdout(), r)
		},
	}
	addDataDir(cmd, &dataDir)
	cmd.Flags().BoolVar(&pods, "pods", false, "also stop the pods of this machine's node")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "longest time to wait for the end of the process")
	return cmd
}

// addDataDir adds --data-dir to a command for an existing cluster.
func addDataDir(cmd *cobra.Command, dataDir *string) {
	cmd.Flags().StringVar(dataDir, "data-dir", config.Default().DataDir, "data `DIR` of the cluster, instead of its name")
}

func stopCluster(ctx context.Context, out io.Writer, r *clusters.Record, timeout time.Duration) error {
	if !r.Alive() {
		fmt.Fprintf(out, "%s does not run: it %s\n", r.Name, pastState(r))
		return nil
	}
	fmt.Fprintf(out, "stopping %s (knarr %s, process %d)\n", r.Name, r.Role, r.PID)
	began := time.Now()
	if err := r.Stop(ctx, timeout, func(waited time.Duration) { fmt.Fprintf(out, "  waiting, %d s\n", int(waited.Seconds())) }); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	fmt.Fprintf(out, "stopped after %.1f s\n", time.Since(began).Seconds())
	return nil
}

func stopPods(ctx context.Context, out io.Writer, r *clusters.Record) error {
	if r.RunDir == "" || r.RuntimeEndpoint != "" {
		return fmt.Errorf("stop --pods: no container runtime of knarr's belongs to %s", r)
	}
	if os.Geteuid() != 0 {
		return needRootTo("stop pods")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	n, err := run.StopPods(ctx, r, log)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "pods stopped: %d\nstart it again: %s\n", n, startCommand(r))
	return err
}

func printStopped(out io.Writer, r *clusters.Record) error {
	if n := len(run.Containers(r.RunDir)); r.HasNode() && n > 0 {
		fmt.Fprintf(out, "%d containers of its pods go on running; `knarr stop --pods %s` stops them\n", n, r.Name)
	}
	_, err := fmt.Fprintf(out, "start it again: %s\n", startCommand(r))
	return err
}

// startCommand returns the command line that starts a stopped cluster, without the settings that
// its record holds.
func startCommand(r *clusters.Record) string {
	text := "knarr " + r.Role
	if r.DataDir != clusters.DefaultDataDir {
		text += " --data-dir " + r.DataDir
	}
	if r.Detached {
		text += " --detach"
	}
	for _, flag := range r.Flags {
		text += " " + shellWord(flag)
	}
	return text
}
