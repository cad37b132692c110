package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

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
		dir, err := blobFolder(os.TempDir())
		if err != nil {
			return fmt.Errorf("registry: %w", err)
		}
		defer dir.Close()
		defer os.RemoveAll(dir.Name())
		served, err := registry.Start(command.Context(), *listen, dir.Name())
		if err != nil {
			return err
		}
		fmt.Fprintln(command.OutOrStdout(), "ready http://"+served.Address)
		served.Wait()
		return nil
	}
	return command
}

// folderPrefix begins the names of registries' folders.
const folderPrefix = "knarr-registry-"

// blobFolder makes a folder for a registry, and removes the folders of killed ones. A running
// registry holds the lock of its folder, which is the returned file.
func blobFolder(in string) (*os.File, error) {
	old, err := filepath.Glob(filepath.Join(in, folderPrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, path := range old {
		if err := removeAbandoned(path); err != nil {
			return nil, err
		}
	}
	path, err := os.MkdirTemp(in, folderPrefix)
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	// Another start may take a folder without a lock for an abandoned one.
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("another registry starts at the same time; start this one again: %w", err), dir.Close())
	}
	return dir, nil
}

// removeAbandoned removes the folder unless a registry runs on it, or it belongs to another user.
func removeAbandoned(path string) error {
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // gone meanwhile, a link, or not readable
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || int(stat.Uid) != os.Geteuid() {
		return err
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	return os.RemoveAll(path)
}
