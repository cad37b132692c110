package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/run"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

func snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Save and restore what the cluster's store holds"}
	cmd.AddCommand(snapshotSave(), snapshotRestore(), snapshotList())
	return cmd
}

func snapshotSave() *cobra.Command {
	s := newSettings()
	cmd := &cobra.Command{
		Use: "save [FILE]", Short: "Write all objects, as of one moment, into a file (default: one named by the time in DATA-DIR/snapshots)", Args: cobra.MaximumNArgs(1),
		Long: "Writes all objects, as of one moment, into a file in etcd's format with a hash. The server may run or not; with --kubeconfig it may be\n" +
			"elsewhere. Volumes, images and keys (DATA-DIR/pki) are not in it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := s.complete(cmd)
			if err != nil {
				return err
			}
			if s.Kubeconfig == "" && !hasCluster(s.DataDir) {
				return fmt.Errorf("snapshot: %w", noCluster(clusters.Here(), s.DataDir))
			}
			path := run.NewSnapshotPath(&s.Config, time.Now())
			if len(args) > 0 {
				path = args[0]
			}
			info, err := run.SaveSnapshot(cmd.Context(), &s.Config, path, log)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: revision %d, %d keys, %d bytes\n", path, info.Revision, info.Keys, info.Size)
			return nil
		},
	}
	s.addFlags(cmd, config.Process)
	cmd.Flags().StringVar(&s.Kubeconfig, "kubeconfig", "", "how to reach a server elsewhere, as its admin")
	return cmd
}

func snapshotRestore() *cobra.Command {
	s := newSettings()
	var bump uint64
	var force bool
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Put a snapshot's objects into the data folder of a server that does not run", Args: cobra.ExactArgs(1),
		Long: "Verifies the snapshot's hash and makes the data folder's store from it; the next `knarr up` or `knarr server` serves it. Revisions go on\n" +
			"from a higher number, so that nothing that watches takes the restored state for a later one of the same history.",
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := s.complete(cmd)
			if err != nil {
				return err
			}
			kept, err := run.RestoreSnapshot(&s.Config, args[0], bump, force, time.Now(), log)
			if err != nil {
				return err
			}
			if kept != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "the store that was there is in %s\n", kept)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "restored into %s\n", s.DataDir)
			return nil
		},
	}
	s.addFlags(cmd, config.Process)
	cmd.Flags().Uint64Var(&bump, "bump-revision", etcd.RevisionBump, "added to the snapshot's revision; more than was written since it was taken. 0 keeps the revision")
	cmd.Flags().BoolVar(&force, "force", false, "where there is a store already, put it aside")
	return cmd
}

func snapshotList() *cobra.Command {
	s := newSettings()
	cmd := &cobra.Command{
		Use: "ls [FILE|FOLDER]...", Short: "List snapshots, verified, with revision, keys, size and time (default: those in DATA-DIR/snapshots)",
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := s.complete(cmd); err != nil {
				return err
			}
			if len(args) == 0 {
				args = []string{run.SnapshotFolder(&s.Config)}
			}
			files, err := snapshotFiles(args, run.SnapshotFolder(&s.Config))
			if err != nil {
				return err
			}
			return printSnapshots(cmd, files)
		},
	}
	s.addFlags(cmd, config.Process)
	return cmd
}

// snapshotFiles are the files named, and the *.db in the folders named. Only the folder by default need not be there.
func snapshotFiles(names []string, byDefault string) ([]string, error) {
	var files []string
	for _, name := range names {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) && len(names) == 1 && name == byDefault {
			return nil, nil // none was saved yet
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("snapshot: there is no file %s", name)
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		if !info.IsDir() {
			files = append(files, name)
			continue
		}
		found, err := filepath.Glob(filepath.Join(name, "*.db"))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

// printSnapshots goes on after one that is damaged, and ends with status 1 then.
func printSnapshots(cmd *cobra.Command, files []string) error {
	out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "FILE\tREVISION\tKEYS\tSIZE\tTIME")
	var status error
	for _, file := range files {
		info, err := etcd.InspectSnapshot(file)
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), err)
			status = ExitStatus(1)
			continue
		}
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%s\n", file, info.Revision, info.Keys, info.Size, info.Time.UTC().Format(time.RFC3339))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return status
}
