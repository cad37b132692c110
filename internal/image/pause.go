package image

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"time"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// EnsurePause builds the sandbox image from the embedded pause program and stores it in containerd,
// unless an image of that name exists. program is Runtime.Program("pause") of package cri.
func (c *Client) EnsurePause(ctx context.Context, name string, program func() ([]byte, error)) error {
	if _, err := c.images.Get(inNamespace(ctx), &imagesapi.GetImageRequest{Name: name}); err == nil {
		return nil
	}
	content, err := program()
	if err != nil {
		return fmt.Errorf("make sandbox image: %w", err)
	}
	image, err := scratch()
	if err != nil {
		return fmt.Errorf("make sandbox image: %w", err)
	}
	pause, err := newLayer(func(to io.Writer) error {
		archive := tar.NewWriter(to)
		if err := archive.WriteHeader(&tar.Header{Name: "pause", Mode: 0o755, Size: int64(len(content)), ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
		return archive.Close()
	})
	if err != nil {
		return fmt.Errorf("make sandbox image: %w", err)
	}
	if image, err = appendLayer(image, pause, "knarr: pause"); err != nil {
		return fmt.Errorf("make sandbox image: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("make sandbox image: %w", err)
	}
	config = config.DeepCopy()
	config.Config.Entrypoint, config.Config.User = []string{"/pause"}, "65535:65535"
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return fmt.Errorf("make sandbox image: %w", err)
	}
	_, err = c.Store(ctx, image, name)
	return err
}
