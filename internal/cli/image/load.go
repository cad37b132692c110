package image

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	images "github.com/knarr-project/knarr/internal/image"
)

func load(dial dialer) *cobra.Command {
	command := &cobra.Command{
		Use:   "load FILE...",
		Short: "Load images from docker or OCI archives",
		Long: "Loads images from docker or OCI archives (.tar, .tar.gz, .tar.zst; - is the standard input) and OCI\n" +
			"layout folders, and prints their names. It refuses an archive that would fill the node's disk.",
		Example: "sudo knarr image load images.tar\ndocker save shop/web:v1 | sudo knarr image load -",
		Args:    cobra.MinimumNArgs(1),
	}
	flags := command.Flags()
	name := flags.StringP("name", "t", "", "`NAME` of the image, instead of the one in the archive")
	limits := limitFlags(command)
	command.RunE = func(command *cobra.Command, files []string) error {
		options := images.LoadOptions{Name: *name}
		var err error
		if options.Limits, err = limits(); err != nil {
			return err
		}
		client, err := dial()
		if err != nil {
			return err
		}
		defer client.Close()
		for _, file := range files {
			var loaded []string
			if file == "-" {
				loaded, err = client.Load(command.Context(), command.InOrStdin(), options)
			} else {
				loaded, err = client.LoadFile(command.Context(), file, options)
			}
			if err != nil {
				return withFlag(err)
			}
			for _, name := range loaded {
				fmt.Fprintln(command.OutOrStdout(), name)
			}
		}
		return nil
	}
	return command
}

// flagOf names the flag of a limit.
var flagOf = map[string]string{
	images.FieldUnpackedBytes: "max-unpacked", images.FieldEntries: "max-entries", images.FieldRatio: "max-ratio", images.FieldLayers: "max-layers",
}

// limitFlags adds the flags of the limits, and returns their reader.
func limitFlags(command *cobra.Command) func() (images.Limits, error) {
	flags, limits := command.Flags(), images.DefaultLimits
	unpacked := flags.String(flagOf[images.FieldUnpackedBytes], "64Gi", "most `BYTES` that all layers of an archive unpack to")
	flags.Int64Var(&limits.Entries, flagOf[images.FieldEntries], limits.Entries, "most files, folders and links `N` of all layers of an archive")
	flags.Int64Var(&limits.Ratio, flagOf[images.FieldRatio], limits.Ratio, "most bytes `N` for each compressed byte, if a layer unpacks to more than 1Gi")
	flags.IntVar(&limits.Layers, flagOf[images.FieldLayers], limits.Layers, "most layers `N` of one image")
	return func() (images.Limits, error) {
		quantity, err := resource.ParseQuantity(*unpacked)
		if err != nil {
			return limits, fmt.Errorf("--%s=%q: allowed are quantities such as 64Gi: %w", flagOf[images.FieldUnpackedBytes], *unpacked, err)
		}
		limits.UnpackedBytes = quantity.Value()
		return limits, limits.Validate()
	}
}

// withFlag adds the flag that allows more.
func withFlag(err error) error {
	var limit *images.LimitError
	if !errors.As(err, &limit) || flagOf[limit.Field] == "" {
		return err
	}
	return fmt.Errorf("%w (--%s allows more)", err, flagOf[limit.Field])
}
