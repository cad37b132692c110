package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// BuildOptions describes the image to build. Source is one of
//   - a folder with a Containerfile (or Dockerfile), whose instructions are executed,
//   - a folder without one, which becomes the root filesystem as it is, including owners and times,
//   - a static program, which becomes /NAME and the entrypoint.
type BuildOptions struct {
	Source string
	// File is the Containerfile's path if it is not Source/Containerfile or Source/Dockerfile.
	File string
	// Args are values for ARG instructions.
	Args map[string]string
	// Entrypoint, Command, User and WorkingDir replace the source's values; Env is added to them.
	Entrypoint, Command, Env []string
	User, WorkingDir         string
	// Base returns the image of a FROM instruction other than scratch.
	Base func(ctx context.Context, name string) (v1.Image, error)
}

// Build builds an image from files, without a daemon. It reads the files when the image is written;
// they must not change before.
func Build(ctx context.Context, options BuildOptions) (v1.Image, error) {
	image, err := build(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("build image of %s: %w", options.Source, err)
	}
	return image, nil
}

func build(ctx context.Context, options BuildOptions) (v1.Image, error) {
	info, err := os.Stat(options.Source)
	if err != nil {
		return nil, err
	}
	var image v1.Image
	switch file := containerfile(options); {
	case file != "":
		image, err = buildContainerfile(ctx, options, file)
	case info.IsDir():
		image, err = buildRoot(options.Source)
	default:
		image, err = buildProgram(options.Source)
	}
	if err != nil {
		return nil, err
	}
	return override(image, options)
}

// containerfile returns the path of the instructions, or "".
func containerfile(options BuildOptions) string {
	if options.File != "" {
		return options.File
	}
	for _, name := range []string{"Containerfile", "Dockerfile"} {
		file := filepath.Join(options.Source, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file
		}
	}
	return ""
}

// scratch returns an empty image for this platform, in OCI's media types.
func scratch() (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = platform()
	file.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return mutate.ConfigFile(image, file)
}

func appendLayer(image v1.Image, added v1.Layer, createdBy string) (v1.Image, error) {
	return mutate.Append(image, mutate.Addendum{Layer: added, MediaType: types.OCIUncompressedLayer, History: v1.History{CreatedBy: createdBy}})
}

func buildRoot(folder string) (v1.Image, error) {
	image, err := scratch()
	if err != nil {
		return nil, err
	}
	root, err := layerOf(folder, []source{{from: ".", to: "", rules: entryRules{keepMeta: true}}})
	if err != nil {
		return nil, err
	}
	return appendLayer(image, root, "knarr image build: root folder")
}

func buildProgram(file string) (v1.Image, error) {
	image, err := scratch()
	if err != nil {
		return nil, err
	}
	name := filepath.Base(file)
	program, err := layerOf(filepath.Dir(file), []source{{from: name, to: name, rules: entryRules{mode: 0o755}}})
	if err != nil {
		return nil, err
	}
	if image, err = appendLayer(image, program, "knarr image build: program"); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Config.Entrypoint = []string{"/" + name}
	return mutate.ConfigFile(image, config)
}

// override applies the options that take precedence over the source.
func override(image v1.Image, options BuildOptions) (v1.Image, error) {
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	if options.Entrypoint != nil {
		file.Config.Entrypoint, file.Config.Cmd = options.Entrypoint, nil
	}
	if options.Command != nil {
		file.Config.Cmd = options.Command
	}
	if options.User != "" {
		file.Config.User = options.User
	}
	if options.WorkingDir != "" {
		file.Config.WorkingDir = options.WorkingDir
	}
	for _, variable := range options.Env {
		name, value, found := strings.Cut(variable, "=")
		if !found {
			return nil, fmt.Errorf("environment variable %q: want NAME=VALUE", variable)
		}
		file.Config.Env = setEnv(file.Config.Env, name, value)
	}
	return mutate.ConfigFile(image, file)
}

func setEnv(env []string, name, value string) []string {
	for i, variable := range env {
		if strings.HasPrefix(variable, name+"=") {
			env[i] = name + "=" + value
			return env
		}
	}
	return append(env, name+"="+value)
}

// BaseImage returns the image of a FROM instruction from containerd. A missing base must be loaded
// first.
func (c *Client) BaseImage(ctx context.Context, name string) (v1.Image, error) {
	image, err := c.Stored(ctx, name)
	if err != nil {
		return nil, errors.Join(err, errors.New("load it first: knarr image load"))
	}
	return image, nil
}
