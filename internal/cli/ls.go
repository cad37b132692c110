package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
)

func lsCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the clusters of this machine", Args: cobra.NoArgs,
		Long: "Lists the clusters of this machine that run or have run since the machine was started, and always the one in\n" +
			clusters.DefaultDataDir + ". A cluster's name is the last part of its data folder; another one of that name has a\nhash after it.",
		Example: "knarr ls\nknarr ls -o name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			known := clusters.Here().List()
			switch output {
			case "json":
				return printJSON(cmd.OutOrStdout(), listed(known))
			case "name":
				for _, r := range known {
					fmt.Fprintln(cmd.OutOrStdout(), r.Name)
				}
				return nil
			case "":
				return printClusters(cmd.OutOrStdout(), cmd.ErrOrStderr(), known)
			}
			return outputError(output, "json or name")
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`FORMAT` of the output: json or name, instead of a table")
	config.Enumerate(cmd.Flags().Lookup("output"), "json", "name")
	return cmd
}

func outputError(found, allowed string) error {
	return fmt.Errorf("--output: %q is not usable: %s", found, allowed)
}

func printJSON(to io.Writer, v any) error {
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// listedCluster is an entry of `knarr ls -o json`: the record, its folder, and derived fields.
type listedCluster struct {
	*clusters.Record
	DataDir string         `json:"dataDir"`
	State   clusters.State `json:"state"`
	Since   time.Time      `json:"since,omitzero"`
	URL     string         `json:"url,omitempty"`
}

func listed(known []*clusters.Record) []listedCluster {
	list := make([]listedCluster, len(known))
	for i, r := range known {
		list[i] = listedCluster{Record: r, DataDir: r.DataDir, State: r.State(), Since: r.Since(), URL: r.URL()}
	}
	return list
}

func printClusters(out, hints io.Writer, known []*clusters.Record) error {
	if len(known) == 0 {
		_, err := fmt.Fprintln(hints, "no clusters here: `knarr up` starts one")
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tSTATE\tROLE\tPID\tSINCE\tAPI SERVER\tDATA FOLDER")
	for _, r := range known {
		pid := "-"
		if r.Alive() {
			pid = fmt.Sprint(r.PID)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.State(), r.Role, pid, ago(time.Since(r.Since())), orDash(r.URL()), r.DataDir)
	}
	return table.Flush()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// ago formats a duration with its two largest units.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}
