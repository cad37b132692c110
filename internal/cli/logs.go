package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/cli/logs"
	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
)

func logsCommand() *cobra.Command {
	var dataDir, part, since string
	var follow bool
	var last int
	cmd := &cobra.Command{
		Use: "logs [NAME]", Short: "Show the logs of a cluster and of its container runtime", Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeNames,
		Long: "Shows the logs in a cluster's data folder in the order of time: knarr.log, which a process in the background\n" +
			"(--detach) writes, and log/containerd.log. A process in the foreground logs to its terminal. `knarr kubectl\n" +
			"logs POD` shows a pod's log.",
		Example: "knarr logs -f\nknarr logs harbour --since 10m --part containerd",
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := parseSince(since, time.Now())
			if err != nil {
				return err
			}
			r, err := targetCluster(args, dataDir, cmd.Flags().Changed("data-dir"))
			if err != nil {
				return err
			}
			sources, err := logSources(r, part)
			if err != nil {
				return err
			}
			hint(cmd.ErrOrStderr(), r, sources)
			return showLogs(cmd.Context(), cmd.OutOrStdout(), sources, logs.Options{Since: from, Last: last}, follow)
		},
	}
	addDataDir(cmd, &dataDir)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new lines until Ctrl-C")
	cmd.Flags().StringVar(&since, "since", "", "only lines after this `TIME`: a duration such as 10m, or 2026-01-02T15:04:05Z")
	cmd.Flags().IntVarP(&last, "tail", "n", -1, "only the last `N` lines; -1 shows all")
	cmd.Flags().StringVar(&part, "part", "", "only the log of this `PART`: knarr or containerd")
	config.Enumerate(cmd.Flags().Lookup("part"), "knarr", "containerd")
	return cmd
}

// parseSince parses a duration before now, or a time.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since: %q is not usable: a duration such as 10m, or a time such as 2026-01-02T15:04:05Z", text)
}

func logSources(r *clusters.Record, part string) ([]logs.Source, error) {
	all := []logs.Source{{Name: "knarr", Path: r.Log()}, {Name: "containerd", Path: r.RuntimeLog()}}
	if part == "" {
		return all, nil
	}
	i := slices.IndexFunc(all, func(s logs.Source) bool { return s.Name == part })
	if i < 0 {
		return nil, fmt.Errorf("--part: %q is not usable: knarr or containerd", part)
	}
	return all[i : i+1], nil
}

// hint tells where the log of a foreground process is.
func hint(to io.Writer, r *clusters.Record, sources []logs.Source) {
	if r.Detached || sources[0].Name != "knarr" {
		return
	}
	if !r.Alive() {
		fmt.Fprintf(to, "%s ran in the foreground: its log went to its terminal\n", r.Name)
		return
	}
	where := "standard error"
	if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/2", r.PID)); err == nil {
		where = target
	}
	fmt.Fprintf(to, "%s runs in the foreground (process %d): its log goes to %s; a start with --detach writes %s\n", r.Name, r.PID, where, r.Log())
}

func showLogs(ctx context.Context, out io.Writer, sources []logs.Source, options logs.Options, follow bool) error {
	followers := make([]*logs.Follower, len(sources))
	if follow {
		for i, source := range sources { // open before reading, so that no line is lost in between
			followers[i] = logs.Follow(source)
			defer followers[i].Close()
		}
	}
	lines, err := logs.Read(sources, options)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w (try sudo)", err)
	}
	if err != nil {
		return err
	}
	show := func(lines []logs.Line) error {
		for _, line := range lines {
			text := line.Text
			if len(sources) > 1 {
				text = fmt.Sprintf("%-10s | %s", line.Source, text)
			}
			if _, err := fmt.Fprintln(out, text); err != nil {
				return err
			}
		}
		return nil
	}
	if err := show(lines); err != nil || !follow {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
		for _, f := range followers {
			if err := show(f.More()); err != nil {
				return err
			}
		}
	}
}
