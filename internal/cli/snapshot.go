package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/run"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

func snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Save, restore, list and check snapshots of all objects"}
	cmd.AddCommand(snapshotSave(), snapshotRestore(), snapshotList(), snapshotCheck(), snapshotRemove())
	return cmd
}

// placeFlags are the settings that say where snapshots are.
var placeFlags = []string{
	"data-dir", "snapshot-dir", "snapshot-s3-bucket", "snapshot-s3-prefix", "snapshot-s3-endpoint", "snapshot-s3-region",
	"snapshot-s3-credentials-file", "snapshot-s3-ca", "snapshot-s3-path-style",
}

// snapshotShown are the settings that the help of these commands shows.
var snapshotShown = []string{"data-dir", "snapshot-dir", "snapshot-with-keys", "snapshot-key-file", "snapshot-s3-bucket", "log-level", "config"}

// snapshotWords explain the arguments of these commands.
const snapshotWords = "A snapshot is named by its file, or as s3://BUCKET/PREFIX/NAME. A folder, s3://BUCKET/PREFIX, or s3:// for the\n" +
	"configured bucket names all in it. Settings of the server of --data-dir apply, unless flags say otherwise."

func snapshotSave() *cobra.Command {
	s := newSettings()
	cmd := &cobra.Command{
		Use: "save [FILE|FOLDER|s3://...]", Short: "Save all objects, as of one moment, in a file", Args: cobra.MaximumNArgs(1),
		Long: "Saves all objects, as of one moment, in a file of etcd's format with a hash, and restores it into a scratch store\n" +
			"to check it. FILE.json records what it holds. Without FILE it is named by the time in DATA-DIR/snapshots. The server\n" +
			"can run or not. Volumes and images are not in it; keys are with --snapshot-with-keys.",
		Example: "knarr snapshot save before.db\nknarr snapshot save --kubeconfig admin.conf before.db\n" +
			"knarr snapshot save --snapshot-with-keys --snapshot-key-file recipients.txt\nknarr snapshot save s3://",
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := s.complete(cmd)
			if err == nil {
				err = s.recallSnapshots(cmd)
			}
			if err != nil {
				return err
			}
			if s.Kubeconfig == "" && !hasCluster(s.DataDir) {
				return fmt.Errorf("snapshot: %w", noCluster(clusters.Here(), s.DataDir))
			}
			where, r, err := run.SaveSnapshot(cmd.Context(), &s.Config, strings.Join(args, ""), time.Now(), log)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: revision %d, %d keys, %d bytes\n", shown(where, args), r.Revision, r.Keys, r.Size)
			return nil
		},
	}
	s.takeFlags(cmd, append(placeFlags, "snapshot-with-keys", "snapshot-key-file", "encryption-provider-config", "service-account-key-file", "service-account-signing-key-file", "log-level")...)
	common(cmd, snapshotShown...)
	cmd.Flags().StringVar(&s.Kubeconfig, "kubeconfig", "", "admin kubeconfig `FILE` of a server elsewhere, instead of --data-dir")
	return cmd
}

// shown returns a file as the user has named it.
func shown(where string, args []string) string {
	if len(args) > 0 && strings.HasSuffix(where, strings.TrimPrefix(args[0], "./")) && !strings.HasPrefix(args[0], "s3:") {
		return args[0]
	}
	return where
}

func snapshotRestore() *cobra.Command {
	s := newSettings()
	opts := run.Restore{}
	var at string
	cmd := &cobra.Command{
		Use: "restore [FILE|FOLDER|s3://...]", Short: "Restore a snapshot into the data folder of a stopped server", Args: cobra.MaximumNArgs(1),
		Long: "Verifies the snapshot and makes the data folder's store from it. The next `knarr up` or `knarr server` serves it, as\n" +
			"a cluster of one server; other servers join again. Revisions continue from a higher number, so that clients list\n" +
			"again instead of mixing the restored state with what they know. --bump-revision 0 keeps the revision.\n" + snapshotWords,
		Example: "knarr snapshot restore before.db\nknarr snapshot restore --force before.db\n" +
			"knarr snapshot restore --at 2026-01-02T15:04 --force\nknarr snapshot restore --at newest s3://backups/one",
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := s.complete(cmd)
			if err == nil {
				err = s.recallSnapshots(cmd)
			}
			if err != nil {
				return err
			}
			if len(args) == 0 && at == "" {
				return usageError(cmd, errors.New("a snapshot is missing: name one, or select one by --at TIME or --at newest"))
			}
			opts.Source, opts.Now, opts.Pick = strings.Join(args, ""), time.Now(), at != ""
			if opts.At, err = parseTime(at); err != nil {
				return usageError(cmd, err)
			}
			result, err := run.RestoreSnapshot(cmd.Context(), &s.Config, opts, log)
			if err != nil {
				return err
			}
			printRestored(cmd, result, opts.Pick, s.DataDir)
			return nil
		},
	}
	s.takeFlags(cmd, append(placeFlags, "snapshot-key-file", "log-level")...)
	common(cmd, snapshotShown...)
	cmd.Flags().Uint64Var(&opts.Bump, "bump-revision", etcd.RevisionBump, "`N` to add to the snapshot's revision, more than the writes since it was taken")
	cmd.Flags().BoolVar(&opts.Force, "force", false, "put aside a store, and another cluster's keys, that are there already")
	cmd.Flags().StringVar(&at, "at", "", "take the newest good snapshot at `TIME` or before; \"newest\" takes the last one")
	onlyOnCommandLine(cmd, "force", "bump-revision", "at")
	return cmd
}

// timeForms are the accepted forms of --at. Without a zone, the time is the machine's.
var timeForms = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02", snapshots.TimeFormat}

// parseTime returns the zero time for the newest snapshot.
func parseTime(text string) (time.Time, error) {
	if text == "" || text == "newest" {
		return time.Time{}, nil
	}
	for _, form := range timeForms {
		if at, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("at: %q is not usable: a time such as 2026-01-02T15:04 or 2026-01-02T15:04:05Z, or newest", text)
}

func printRestored(cmd *cobra.Command, r run.RestoreResult, picked bool, dataDir string) {
	out := cmd.OutOrStdout()
	if picked {
		fmt.Fprintf(out, "restoring %s, taken at %s\n", r.From, r.Taken.UTC().Format(time.RFC3339))
	}
	if r.Kept != "" {
		fmt.Fprintf(out, "the store that was there is in %s\n", r.Kept)
	}
	if k := r.Keys; k != nil {
		switch {
		case k.Same:
			fmt.Fprintln(out, "the keys are this cluster's already")
		case k.KeptPKI != "":
			fmt.Fprintf(out, "the cluster's keys are restored; those that were there are in %s\n", k.KeptPKI)
		default:
			fmt.Fprintln(out, "the cluster's keys are restored")
		}
		if k.Encryption != "" {
			fmt.Fprintf(out, "start with --encryption-provider-config %s\n", k.Encryption)
		}
		for _, file := range k.Accounts {
			fmt.Fprintf(out, "a key of service accounts is in %s: name it as before by --service-account-key-file or --service-account-signing-key-file\n", file)
		}
	}
	fmt.Fprintf(out, "restored into %s\n", dataDir)
}

func snapshotCheck() *cobra.Command {
	s := newSettings()
	cmd := &cobra.Command{
		Use: "check [FILE|FOLDER|s3://...]...", Short: "Restore snapshots into a scratch store and count what is in them",
		Long: "Restores each snapshot into a scratch store, starts it, and counts its keys. The result must be what the record says\n" +
			"that was written when the snapshot was taken. The exit status is 1 if a snapshot is damaged.\n" + snapshotWords,
		Example: "knarr snapshot check before.db\nknarr snapshot check s3://backups/one",
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := s.complete(cmd)
			if err == nil {
				err = s.recallSnapshots(cmd)
			}
			if err != nil {
				return err
			}
			var status error
			err = s.eachSnapshot(cmd, args, func(place snapshots.Place, e snapshots.Entry, name string) {
				c, err := run.CheckSnapshot(cmd.Context(), &s.Config, place, e.Name, log)
				if err != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "%v\n", err)
					status = ExitStatus(1)
					return
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: good: revision %d, %d keys, digest %.16s\n", name, c.Revision, c.Keys, c.Digest)
			})
			return errors.Join(err, status)
		},
	}
	s.takeFlags(cmd, append(placeFlags, "snapshot-key-file", "log-level")...)
	common(cmd, snapshotShown...)
	return cmd
}

func snapshotRemove() *cobra.Command {
	s := newSettings()
	var force bool
	cmd := &cobra.Command{
		Use: "rm FILE|s3://...", Short: "Remove snapshots and their records", Args: cobra.MinimumNArgs(1),
		Long: "Removes snapshots and their records. The newest good snapshot of a folder or bucket needs --force.\n" +
			"A snapshot is named by its file, by its name in DATA-DIR/snapshots, or as s3://BUCKET/PREFIX/NAME.",
		Example: "knarr snapshot rm before.db",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := s.complete(cmd)
			if err == nil {
				err = s.recallSnapshots(cmd)
			}
			if err != nil {
				return err
			}
			for _, arg := range args {
				if err := s.removeSnapshot(cmd, arg, force); err != nil {
					return fmt.Errorf("snapshot: %w", err)
				}
			}
			return nil
		},
	}
	s.takeFlags(cmd, placeFlags...)
	common(cmd, snapshotShown...)
	cmd.Flags().BoolVar(&force, "force", false, "remove the newest good snapshot too")
	onlyOnCommandLine(cmd, "force")
	return cmd
}

func (s *settings) removeSnapshot(cmd *cobra.Command, arg string, force bool) error {
	place, name, err := snapshots.Find(arg, run.SnapshotS3(&s.Config))
	if err != nil {
		return err
	}
	if name == "" {
		return fmt.Errorf("%s has snapshots: name one of them", place)
	}
	ctx := cmd.Context()
	if _, err := place.Get(ctx, name); errors.Is(err, snapshots.ErrNotFound) && !strings.Contains(arg, "/") && s.SnapshotDir() != "" {
		place = snapshots.Folder(s.SnapshotDir())
	}
	if _, err := place.Get(ctx, name); err != nil {
		return err
	}
	entries, err := place.List(ctx)
	if err != nil {
		return err
	}
	if newest, ok := snapshots.Newest(entries, time.Time{}); ok && newest.Name == name && !force {
		return fmt.Errorf("%s is the newest good snapshot there: --force removes it", place.At(name))
	}
	if err := place.Remove(ctx, name); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", place.At(name))
	return nil
}

// recallSnapshots takes the settings about snapshots from the server's last start, unless this
// command line or its file gives them.
func (s *settings) recallSnapshots(cmd *cobra.Command) error {
	r, err := clusters.Load(s.DataDir)
	if err != nil {
		return nil // a folder without a record, such as a new one for a restore
	}
	var file string
	for _, flag := range r.Flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if name == "config" && s.File == "" {
			file = value
			continue
		}
		known := cmd.Flags().Lookup(name)
		if known == nil || known.Changed || !isSnapshotSetting(name) {
			continue
		}
		if err := cmd.Flags().Set(name, value); err != nil {
			return fmt.Errorf("--%s of the server's last start: %w", name, err)
		}
	}
	if file != "" {
		if err := config.ReadFile(cmd.Flags(), file); err != nil {
			return fmt.Errorf("--config of the server's last start: %w", err)
		}
	}
	return s.Validate()
}

func isSnapshotSetting(name string) bool {
	return strings.HasPrefix(name, "snapshot-") || strings.HasPrefix(name, "service-account-") || name == "encryption-provider-config"
}
