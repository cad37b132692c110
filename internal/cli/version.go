package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/version"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Which knarr this is, and which Kubernetes it speaks", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "knarr %s\nKubernetes %s\n%s %s/%s\n", version.Knarr, version.Kubernetes, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
