package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/doctor"
	"github.com/knarr-project/knarr/internal/run"
)

func doctorCommand() *cobra.Command {
	s := newSettings()
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what this machine lacks for a node, with the remedy", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := s.complete(cmd); err != nil {
				return err
			}
			worst := doctor.Fine
			for _, f := range run.Doctor(&s.Config) {
				fmt.Fprintf(cmd.OutOrStdout(), "%-8s %-22s %s\n", f.Level, f.What, f.Found)
				if f.Remedy != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "%31s %s\n", "remedy:", f.Remedy)
				}
				worst = max(worst, f.Level)
			}
			if worst == doctor.Broken {
				return ExitStatus(1)
			}
			return nil
		},
	}
	s.takeFlags(cmd, "data-dir", "run-dir", "listen", "kubelet-listen", "cgroup-root")
	return cmd
}
