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
	"github.com/knarr-project/knarr/internal/run"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

func snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Save, restore and list snapshots of all objects"}
	cmd.AddCommand(snapshotSave(), snapshotRestore(), snapshotList())
	return cmd
}

func snapshotSave() *cobra.Command {
	s := newSettings()
	cmd := &cobra.Command{
		Use: "save [FILE]", Short: "Save all objects, as of one moment, in a file", Args: cobra.MaximumNArgs(1),
		Long: "Saves all objects, as of one moment, in a file of etcd's format with a hash. Without FILE it is named by the\n" +
			"time in DATA-DIR/snapshots. The server can run or not. Volumes, images and keys (DATA-DIR/pki) are not in it.",
		Example: "knarr snapshot save before.db\nknarr snapshot save --kubeconfig admin.conf before.db",
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
	s.takeFlags(cmd, "data-dir", "log-level")
	cmd.Flags().StringVar(&s.Kubeconfig, "kubeconfig", "", "admin kubeconfig `FILE` of a server elsewhere, instead of --data-dir")
	return cmd
}

func snapshotRestore() *cobra.Command {
	s := newSettings()
	var bump uint64
	var force bool
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Restore a snapshot into the data folder of a stopped server", Args: cobra.ExactArgs(1),
		Long: "Verifies the snapshot's hash and makes the data folder's store from it. The next `knarr up` or `knarr server`\n" +
			"serves it. Revisions continue from a higher number, so that clients list again instead of\n" +
			"mixing the restored state with what they know. --bump-revision 0 keeps the revision.",
		Example: "knarr snapshot restore before.db\nknarr snapshot restore --force before.db",
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
	s.takeFlags(cmd, "data-dir", "log-level")
	cmd.Flags().Uint64Var(&bump, "bump-revision", etcd.RevisionBump, "`N` to add to the snapshot's revision, more than the writes since it was taken")
	cmd.Flags().BoolVar(&force, "force", false, "put aside a store that is there already")
	onlyOnCommandLine(cmd, "force", "bump-revision")
	return cmd
}

func snapshotList() *cobra.Command {
	s := newSettings()
	cmd := &cobra.Command{
		Use: "ls [FILE|FOLDER]...", Short: "Verify and list snapshots: revision, keys, size, time",
		Long: "Verifies snapshots and lists them with revision, keys, size and time. Without arguments it lists\n" +
			"DATA-DIR/snapshots. The exit status is 1 if a snapshot is damaged.",
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
	s.takeFlags(cmd, "data-dir")
	return cmd
}

// snapshotFiles returns the named files, and the *.db files in the named folders. Only the default
// folder may be missing.
func snapshotFiles(names []string, byDefault string) ([]string, error) {
	var files []string
	for _, name := range names {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) && len(names) == 1 && name == byDefault {
			return nil, nil // no snapshot was saved yet
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

// printSnapshots continues after a damaged snapshot, and then ends with status 1.
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
