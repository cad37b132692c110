package image

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/image/registry"
)

// serve returns `knarr image registry`.
func serve() *cobra.Command {
	command := &cobra.Command{
		Use: "registry", Short: "Run a small registry on loopback until it is stopped", Args: cobra.NoArgs,
		Long: "Runs an image registry on a loopback address, for `knarr image push` and for mirrors (REGISTRY/hosts.toml below --registry-hosts).\n" +
			"It has no authentication, and forgets what was pushed when it ends.",
	}
	listen := command.Flags().String("listen", "127.0.0.1:5000", "loopback `IP:PORT`")
	command.RunE = func(command *cobra.Command, _ []string) error {
		dir, err := os.MkdirTemp("", "knarr-registry-")
		if err != nil {
			return fmt.Errorf("registry: %w", err)
		}
		defer os.RemoveAll(dir)
		served, err := registry.Start(command.Context(), *listen, dir)
		if err != nil {
			return err
		}
		fmt.Fprintln(command.OutOrStdout(), "ready http://"+served.Address)
		served.Wait()
		return nil
	}
	return command
}
