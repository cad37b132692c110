package cli

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/run"
)

func purgeCommand() *cobra.Command {
	s := newSettings()
	var yes bool
	cmd := &cobra.Command{
		Use: "purge", Short: "Stop this machine's cluster and remove everything it left", Args: cobra.NoArgs,
		Long: "Stops knarr and its pods on this machine and removes all that they left: the data folder with the cluster's objects, images and\n" +
			"volumes, sockets, mounts, cgroups, links and rules. Nothing else is touched.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needRoot(); err != nil {
				return err
			}
			log, err := s.complete(cmd)
			if err != nil {
				return err
			}
			if !yes && !confirmed(cmd, s.DataDir) {
				return fmt.Errorf("purge: nothing was removed")
			}
			return run.Purge(cmd.Context(), &s.Config, log)
		},
	}
	s.addFlags(cmd, config.Process|config.Node)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// confirmed asks on a terminal; what is not answered with yes is not done.
func confirmed(cmd *cobra.Command, dir string) bool {
	fmt.Fprintf(cmd.OutOrStdout(), "This removes the cluster in %s with everything in it. Type yes to go on: ", dir)
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	return err == nil && strings.TrimSpace(line) == "yes"
}
