package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/run"
)

func rollbackCommand() *cobra.Command {
	s := newSettings()
	var yes, programOnly bool
	cmd := &cobra.Command{
		Use: "rollback", Short: "Go back to the version before, with its objects", Args: cobra.NoArgs,
		Long: "Restores the snapshot that was kept before the first start of the present version, and puts the program of the\n" +
			"version before in the place of this one. The server must not run. Without --yes it only says what it would do,\n" +
			"and what would be lost.",
		Example: "knarr rollback\nknarr rollback --yes\nknarr rollback --program-only --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := s.complete(cmd)
			if err != nil {
				return err
			}
			if programOnly {
				plan, err := run.RollbackProgram(cmd.Context(), &s.Config, yes)
				if err != nil {
					return err
				}
				printProgramRollback(cmd.OutOrStdout(), plan, yes)
				return nil
			}
			plan, err := run.Rollback(cmd.Context(), &s.Config, yes, time.Now(), log)
			if err != nil {
				return err
			}
			printRollback(cmd.OutOrStdout(), plan, yes)
			return nil
		},
	}
	s.takeFlags(cmd, "data-dir", "log-level")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do it")
	cmd.Flags().BoolVar(&programOnly, "program-only", false, "leave the objects: for one of several servers, and for nodes")
	onlyOnCommandLine(cmd, "yes", "program-only")
	return cmd
}

func printProgramRollback(out io.Writer, p *run.RollbackPlan, done bool) {
	fmt.Fprintf(out, "from %s to %s\nobjects   stay\nprogram   %s, in the place of %s\n", p.From, p.To, p.Program, p.Installed)
	if done {
		fmt.Fprintln(out, "done; start knarr again")
		return
	}
	fmt.Fprintln(out, "nothing is changed yet: `knarr rollback --program-only --yes` does it")
}

func printRollback(out io.Writer, p *run.RollbackPlan, done bool) {
	fmt.Fprintf(out, "from %s to %s\n", p.From, p.To)
	fmt.Fprintf(out, "objects   of %s, from %s\n", p.Taken.UTC().Format(time.RFC3339), p.Snapshot)
	if p.Lost >= 0 {
		fmt.Fprintf(out, "lost      %d revisions that were written since\n", p.Lost)
	} else {
		fmt.Fprintln(out, "lost      all that was written since; the present store cannot be read")
	}
	if p.Program != "" {
		fmt.Fprintf(out, "program   %s, in the place of %s\n", p.Program, p.Installed)
	} else {
		fmt.Fprintf(out, "program   %s: put it in place yourself\n", p.Missing)
	}
	if p.Others {
		fmt.Fprintln(out, "servers   this one alone: stop the others before, and let them join again afterwards")
	}
	if done {
		fmt.Fprintf(out, "done; the store that was there is in %s\n", p.Kept)
		return
	}
	fmt.Fprintln(out, "nothing is changed yet: `knarr rollback --yes` does it")
}
