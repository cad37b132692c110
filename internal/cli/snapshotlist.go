package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/run"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

func snapshotList() *cobra.Command {
	s := newSettings()
	cmd := &cobra.Command{
		Use: "ls [FILE|FOLDER|s3://...]...", Short: "Verify and list snapshots: revision, keys, size, time",
		Long: "Verifies the hashes of snapshots in folders, and lists them with revision, keys, size and time. Snapshots in S3 are\n" +
			"listed by their records, without a download. Without arguments it lists DATA-DIR/snapshots. The exit status is 1 if\n" +
			"a snapshot is damaged.\n" + snapshotWords,
		Example: "knarr snapshot ls\nknarr snapshot ls before.db\nknarr snapshot ls s3://",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := s.complete(cmd)
			if err == nil {
				err = s.recallSnapshots(cmd)
			}
			if err != nil {
				return err
			}
			out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(out, "SNAPSHOT\tREVISION\tKEYS\tSIZE\tTIME\tHOLDS\tCHECKED")
			var status error
			err = s.eachSnapshot(cmd, args, func(place snapshots.Place, e snapshots.Entry, name string) {
				row, err := snapshotRow(cmd, place, e)
				if err != nil {
					fmt.Fprintln(cmd.ErrOrStderr(), err)
					status = ExitStatus(1)
					return
				}
				fmt.Fprintf(out, "%s\t%s\n", name, row)
			})
			return errors.Join(err, out.Flush(), status)
		},
	}
	s.takeFlags(cmd, placeFlags...)
	common(cmd, snapshotShown...)
	return cmd
}

// eachSnapshot calls fn for each snapshot that the arguments name, with its name as the user would
// write it. Without arguments these are all of the folder of snapshots.
func (s *settings) eachSnapshot(cmd *cobra.Command, args []string, fn func(place snapshots.Place, e snapshots.Entry, name string)) error {
	if len(args) == 0 {
		if s.SnapshotDir() == "" {
			return errors.New("snapshot: --snapshot-dir is none: name a folder or s3://")
		}
		args = []string{s.SnapshotDir() + "/"}
	}
	for _, arg := range args {
		place, name, err := snapshots.Find(arg, run.SnapshotS3(&s.Config))
		if err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		if name != "" {
			e, err := place.Get(cmd.Context(), name)
			if err != nil {
				return fmt.Errorf("snapshot: %w", err)
			}
			fn(place, e, arg)
			continue
		}
		entries, err := place.List(cmd.Context())
		if err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		for _, e := range entries {
			shown := place.At(e.Name)
			if !strings.HasPrefix(arg, "s3:") {
				shown = filepath.Join(arg, e.Name)
			}
			fn(place, e, shown)
		}
	}
	return nil
}

// snapshotRow returns the columns after the name. It verifies a file of a folder.
func snapshotRow(cmd *cobra.Command, place snapshots.Place, e snapshots.Entry) (string, error) {
	if e.Problem != nil {
		return "", fmt.Errorf("%s: %w", place.At(e.Name), e.Problem)
	}
	at := e.Time().UTC().Format(time.RFC3339)
	_, local := place.(snapshots.Folder)
	if e.Record == nil {
		row := fmt.Sprintf("-\t-\t%d\t%s\t-\tno", e.Size, at)
		if local && !strings.HasSuffix(e.Name, ".age") && !strings.Contains(e.Name, ".tar") {
			info, err := etcd.InspectSnapshot(place.At(e.Name))
			if err != nil {
				return "", err
			}
			row = fmt.Sprintf("%d\t%d\t%d\t%s\tobjects\tno", info.Revision, info.Keys, e.Size, at)
		}
		return row, nil
	}
	if local {
		if _, _, err := snapshots.Fetch(cmd.Context(), place, e.Name, nil); err != nil {
			return "", err
		}
	} else if !e.Good() {
		return "", fmt.Errorf("%s: %w: it has %d bytes, its record %d", place.At(e.Name), snapshots.ErrDamaged, e.Size, e.Record.Size)
	}
	holds := "objects"
	if e.Record.WithKeys {
		holds += "+keys"
	}
	if e.Record.Sealed {
		holds += ", encrypted"
	}
	return fmt.Sprintf("%d\t%d\t%d\t%s\t%s\tyes", e.Record.Revision, e.Record.Keys, e.Size, at, holds), nil
}
