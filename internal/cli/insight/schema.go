package insight

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/check"
	"github.com/knarr-project/knarr/internal/config"
)

func (p *Program) schema() *cobra.Command {
	var (
		crds []string
		dir  string
	)
	cmd := &cobra.Command{
		Use: "schema", Short: "Print JSON schemas of all kinds, for editors", Args: cobra.NoArgs,
		Long: "Prints one JSON schema (draft 7, with descriptions) for all built-in kinds in all served versions, and for the kinds\n" +
			"of --crds. It selects by apiVersion and kind, and refuses unknown fields. With --output it writes a folder: all.json,\n" +
			"and a file for each kind, such as deployment-apps-v1.json.",
		Example: "knarr schema > kubernetes.json\nknarr schema -o schemas --crds crds/",
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := check.Schemas(cmd.Context(), crds)
			if err != nil {
				return fmt.Errorf("schema: %w", err)
			}
			if dir == "" {
				all, err := set.All()
				if err == nil {
					_, err = cmd.OutOrStdout().Write(all)
				}
				return err
			}
			files, err := set.Files()
			if err != nil {
				return fmt.Errorf("schema: %w", err)
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("schema: %w", err)
			}
			for _, name := range slices.Sorted(maps.Keys(files)) {
				if err := os.WriteFile(filepath.Join(dir, name), files[name], 0o644); err != nil {
					return fmt.Errorf("schema: %w", err)
				}
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d files in %s\n", len(files), dir)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&crds, "crds", nil, "`FILE`s or folders with CustomResourceDefinitions")
	f.StringVarP(&dir, "output", "o", "", "`FOLDER` to write instead of the output")
	for _, name := range []string{"crds", "output"} {
		config.OnlyOnCommandLine(f.Lookup(name))
	}
	return cmd
}
