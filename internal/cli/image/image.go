// Package image implements the command `knarr image`: its flags and output. internal/image does the
// work.
package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/clusters"
	images "github.com/knarr-project/knarr/internal/image"
)

// Finder returns the cluster of a data folder or name. If the flag was not given, it returns this
// machine's cluster.
type Finder func(dataDir string, given bool) (*clusters.Record, error)

// Command returns `knarr image` with its subcommands.
func Command(find Finder) *cobra.Command {
	command := &cobra.Command{Use: "image", Short: "Load, build, list, remove and push images of this machine's node"}
	flags := command.PersistentFlags()
	dataDir := flags.String("data-dir", "/var/lib/knarr", "data `DIR` of the cluster, or its name in `knarr ls`")
	runDir := flags.String("run-dir", "", "`DIR` of the runtime's sockets (default: the data folder remembers it)")
	socket := flags.String("socket", "", "`SOCKET` of another containerd, instead of knarr's")
	dial := func() (*images.Client, error) {
		if *socket != "" {
			return images.Dial(*socket)
		}
		if *runDir != "" {
			return dialOwn(filepath.Join(*runDir, "containerd.sock"), "with --run-dir "+*runDir)
		}
		r, err := find(*dataDir, flags.Changed("data-dir"))
		if err != nil {
			return nil, err
		}
		switch {
		case r.RuntimeEndpoint != "":
			return images.Dial(strings.TrimPrefix(r.RuntimeEndpoint, "unix://"))
		case r.RunDir == "":
			return nil, fmt.Errorf("%s has no node here, and so no images", r)
		case !r.Alive():
			return nil, fmt.Errorf("the cluster %s is %s: images are kept by its container runtime, which runs with it", r, r.State())
		}
		return dialOwn(filepath.Join(r.RunDir, "containerd.sock"), "as "+r.Name)
	}
	command.AddCommand(load(dial), build(dial), list(dial), remove(dial), push(dial), serve())
	return command
}

func dialOwn(socket, which string) (*images.Client, error) {
	_, err := os.Stat(socket)
	if err == nil {
		var conn net.Conn
		if conn, err = net.Dial("unix", socket); err == nil {
			_ = conn.Close()
			return images.Dial(socket)
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("it needs root to reach the container runtime (try sudo): %w", err)
	}
	return nil, fmt.Errorf("no container runtime of knarr runs here %s: %w", which, err)
}

type dialer func() (*images.Client, error)

func build(dial dialer) *cobra.Command {
	command := &cobra.Command{
		Use:   "build -t NAME SOURCE",
		Short: "Build an image from a folder or a static program",
		Long: "Builds an image, without a daemon, from a folder with a Containerfile (without RUN), from a root folder,\n" +
			"or from a static program, and loads it.",
		Example: "sudo knarr image build -t shop/web:v1 ./web\nknarr image build -t shop/web:v1 -o web.tar ./web",
		Args:    cobra.ExactArgs(1),
	}
	flags := command.Flags()
	names := flags.StringArrayP("tag", "t", nil, "`NAME` of the image; can be repeated")
	output := flags.StringP("output", "o", "", "write an OCI archive `FILE` instead of loading the image")
	file := flags.StringP("file", "f", "", "`FILE` to build by (default: SOURCE/Containerfile, else SOURCE/Dockerfile)")
	args := flags.StringToString("build-arg", nil, "value for an ARG instruction, as `NAME=VALUE`")
	entrypoint := flags.StringArray("entrypoint", nil, "`WORD` of the entrypoint; repeated for each word")
	arguments := flags.StringArray("cmd", nil, "`WORD` of the default arguments; repeated for each word")
	env := flags.StringArrayP("env", "e", nil, "environment variable, as `NAME=VALUE`; can be repeated")
	user := flags.String("user", "", "`USER` to run as: UID, UID:GID or a name in the image")
	workingDir := flags.String("workdir", "", "working folder, a `PATH` in the image")
	_ = command.MarkFlagRequired("tag")
	command.RunE = func(command *cobra.Command, sources []string) error {
		options := images.BuildOptions{
			Source: sources[0], File: *file, Args: *args, Entrypoint: *entrypoint, Command: *arguments, Env: *env, User: *user, WorkingDir: *workingDir,
		}
		client, err := dial()
		if err != nil && *output == "" {
			return err
		}
		if err == nil {
			defer client.Close()
			options.Base = client.BaseImage
		}
		image, err := images.Build(command.Context(), options)
		if err != nil {
			return err
		}
		if *output != "" {
			return writeArchive(*output, image, *names)
		}
		stored, err := client.Store(command.Context(), image, *names...)
		if err != nil {
			return err
		}
		fmt.Fprintln(command.OutOrStdout(), strings.Join(stored, "\n"))
		return nil
	}
	return command
}

func writeArchive(path string, image v1.Image, names []string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	err = images.WriteArchive(file, image, names...)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

func list(dial dialer) *cobra.Command {
	return &cobra.Command{
		Use: "ls [TEXT]", Aliases: []string{"list"}, Short: "List images, or those with TEXT in a name", Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			client, err := dial()
			if err != nil {
				return err
			}
			defer client.Close()
			known, err := client.List(command.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			return printImages(command.OutOrStdout(), known)
		},
	}
}

func printImages(to io.Writer, known []images.Image) error {
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tID\tSIZE")
	for _, image := range known {
		for _, name := range image.Names {
			fmt.Fprintf(table, "%s\t%.12s\t%.1f MB\n", name, strings.TrimPrefix(image.ID, "sha256:"), float64(image.Size)/1e6)
		}
	}
	return table.Flush()
}

func remove(dial dialer) *cobra.Command {
	command := withClient("rm NAME...", "Remove images by name", cobra.MinimumNArgs(1), dial,
		func(ctx context.Context, client *images.Client, args []string) error {
			for _, name := range args {
				if err := client.Remove(ctx, name); err != nil {
					return err
				}
			}
			return nil
		})
	command.Long = "Removes names of images. An image without a name left is deleted."
	command.ValidArgsFunction = completeNames(dial, -1)
	return command
}

func push(dial dialer) *cobra.Command {
	command := withClient("push NAME [TARGET]", "Push an image to its registry, or to TARGET", cobra.RangeArgs(1, 2), dial,
		func(ctx context.Context, client *images.Client, args []string) error {
			return client.Push(ctx, args[0], strings.Join(args[1:], ""))
		})
	command.Long = "Pushes an image to the registry of its name, or to TARGET, with docker's saved credentials."
	command.ValidArgsFunction = completeNames(dial, 1)
	return command
}

func withClient(use, short string, args cobra.PositionalArgs, dial dialer, run func(context.Context, *images.Client, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(command *cobra.Command, args []string) error {
		client, err := dial()
		if err != nil {
			return err
		}
		defer client.Close()
		return run(command.Context(), client, args)
	}}
}
