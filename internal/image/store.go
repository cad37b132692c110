package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Store stores a built image in containerd under the names. It does not send layers that containerd
// has.
func (c *Client) Store(ctx context.Context, image v1.Image, names ...string) ([]string, error) {
	present, err := c.presentBlobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("store image: %w", err)
	}
	var full []string
	for _, name := range names {
		normalized, err := Normalize(name)
		if err != nil {
			return nil, err
		}
		full = append(full, normalized)
	}
	attempt := func(present map[string]bool) error {
		reader, writer := io.Pipe()
		defer reader.Close()
		go func() { writer.CloseWithError(writeLayout(writer, image, full, present)) }()
		return c.transfer(ctx, reader)
	}
	err = attempt(present)
	if err != nil && len(present) > 0 && ctx.Err() == nil {
		// Perhaps containerd has garbage-collected a blob that was not sent.
		err = attempt(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("store image %v: %w", full, err)
	}
	return full, c.waitVisible(ctx, full)
}

// WriteArchive writes an image as an OCI layout in a tar.
func WriteArchive(to io.Writer, image v1.Image, names ...string) error {
	for i, name := range names {
		full, err := Normalize(name)
		if err != nil {
			return err
		}
		names[i] = full
	}
	return writeLayout(to, image, names, nil)
}

// writeLayout leaves out the blobs that the receiver has.
func writeLayout(to io.Writer, image v1.Image, names []string, present map[string]bool) error {
	archive := tar.NewWriter(to)
	put := func(name string, content []byte) error {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	}
	if err := put(ocispec.ImageLayoutFile, []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		if err := putLayer(archive, layer, present); err != nil {
			return err
		}
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	configHash, err := image.ConfigName()
	if err != nil {
		return err
	}
	if err := put(blobPath(configHash), config); err != nil {
		return err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	if err := put(blobPath(digest), manifest); err != nil {
		return err
	}
	index, err := layoutIndex(image, names)
	if err != nil {
		return err
	}
	if err := put("index.json", index); err != nil {
		return err
	}
	return archive.Close()
}

func putLayer(archive *tar.Writer, layer v1.Layer, present map[string]bool) error {
	digest, err := layer.Digest()
	if err != nil {
		return err
	}
	if present[digest.String()] {
		return nil
	}
	size, err := layer.Size()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: blobPath(digest), Mode: 0o644, Size: size}); err != nil {
		return err
	}
	content, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(archive, content)
	return err
}

func blobPath(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }

func layoutIndex(image v1.Image, names []string) ([]byte, error) {
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	size, err := image.Size()
	if err != nil {
		return nil, err
	}
	mediaType, err := image.MediaType()
	if err != nil {
		return nil, err
	}
	os, architecture := platform()
	if config, err := image.ConfigFile(); err == nil && config.OS != "" {
		os, architecture = config.OS, config.Architecture
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for _, name := range names {
		index.Manifests = append(index.Manifests, v1.Descriptor{
			MediaType: mediaType, Size: size, Digest: digest,
			Platform:    &v1.Platform{OS: os, Architecture: architecture},
			Annotations: map[string]string{annotationImageName: name},
		})
	}
	return json.Marshal(index)
}

// Push pushes a stored image to its registry, or under another name, with the credentials of
// docker's configuration file. A registry on loopback is contacted in plain HTTP.
func (c *Client) Push(ctx context.Context, stored, target string) error {
	image, err := c.Stored(ctx, stored)
	if err != nil {
		return fmt.Errorf("push image: %w", err)
	}
	if target == "" {
		target = stored
	}
	reference, err := name.ParseReference(target)
	if err != nil {
		return fmt.Errorf("push image: %w", err)
	}
	if err := remote.Write(reference, image, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push image %s to %s: %w", stored, target, err)
	}
	return nil
}
