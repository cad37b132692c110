package cli

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/run"
)

func purgeCommand() *cobra.Command {
	s := newSettings()
	var yes bool
	cmd := &cobra.Command{
		Use: "purge [NAME]", Short: "Stop a cluster and remove everything that it left", Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeNames,
		Long: "Stops knarr and its pods on this machine. Removes the data folder with the cluster's objects, images and\n" +
			"volumes, and all sockets, mounts, cgroups, links and rules of the cluster. Nothing else is touched.\n" +
			"A running server that has others is removed from the members of their store before.\n" +
			"NAME is a name of `knarr ls`. Without it, and without --data-dir, it is the cluster in /var/lib/knarr.",
		Example: "sudo knarr purge\nsudo knarr purge --yes --data-dir /srv/one",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needRootTo("stop containers and to remove mounts, links and files of a cluster"); err != nil {
				return err
			}
			if len(args) > 0 {
				r, err := targetCluster(args, s.DataDir, cmd.Flags().Changed("data-dir"))
				if err != nil {
					return err
				}
				s.DataDir = r.DataDir
			}
			log, err := s.complete(cmd)
			if err != nil {
				return err
			}
			if err := run.Purgeable(s.DataDir); err != nil {
				return fmt.Errorf("purge: %w", err)
			}
			there := hasCluster(s.DataDir)
			if there && !yes && !confirmed(cmd, s.DataDir) {
				return fmt.Errorf("purge: nothing was removed")
			}
			leaveServers(cmd, &s.Config)
			if err := run.Purge(cmd.Context(), &s.Config, log); err != nil {
				return err
			}
			return printPurged(cmd.OutOrStdout(), s.DataDir, there)
		},
	}
	s.takeFlags(cmd, "data-dir", "run-dir", "cgroup-root", "log-level")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	onlyOnCommandLine(cmd, "yes")
	return cmd
}

// leaveServers removes the server from the members of its store, and says so. A purge goes on if
// that fails.
func leaveServers(cmd *cobra.Command, cfg *config.Config) {
	left, err := run.LeaveServers(cmd.Context(), cfg)
	switch {
	case err != nil:
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", err)
	case len(left) > 0:
		fmt.Fprintf(cmd.OutOrStdout(), "removed this server from the members of the store; left: %s\n", strings.Join(left, ", "))
	}
}

// printPurged prints what was removed. If there was nothing, it lists the existing clusters.
func printPurged(out io.Writer, dataDir string, there bool) error {
	if there {
		_, err := fmt.Fprintf(out, "removed the cluster in %s\n", dataDir)
		return err
	}
	text := "no cluster was in " + dataDir
	if known := clusters.Here().List(); len(known) > 0 {
		text += "; " + clusters.Names(known)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// confirmed asks on a terminal. Only the answer yes confirms.
func confirmed(cmd *cobra.Command, dir string) bool {
	fmt.Fprintf(cmd.OutOrStdout(), "This removes the cluster in %s with everything in it. Type yes to go on: ", dir)
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	return err == nil && strings.TrimSpace(line) == "yes"
}
