package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/version"
)

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version of knarr and of Kubernetes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := version.Current()
			switch output {
			case "json":
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(b)
			case "":
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "knarr       %s\nKubernetes  %s\ncommit      %s (%s, tree %s)\nbuilt with  %s for %s\n",
					b.Knarr, b.Kubernetes, b.Commit, b.Date, b.Tree, b.Go, b.Platform)
				return err
			}
			return fmt.Errorf("version: --output %q: wanted json, or nothing for text", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`FORMAT` of the output, json; without it, text")
	config.Enumerate(cmd.Flags().Lookup("output"), "json")
	return cmd
}
