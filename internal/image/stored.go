package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Stored returns an image of containerd for this machine's platform. Layers are read on use.
func (c *Client) Stored(ctx context.Context, name string) (v1.Image, error) {
	full, err := c.find(ctx, name)
	if err != nil {
		return nil, err
	}
	known, err := c.images.Get(inNamespace(ctx), &imagesapi.GetImageRequest{Name: full})
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", full, err)
	}
	manifest, mediaType, err := c.manifest(ctx, known.Image.Target.Digest, known.Image.Target.MediaType)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", full, err)
	}
	image, err := partial.CompressedToImage(&storedImage{ctx: ctx, client: c, manifest: manifest, mediaType: mediaType})
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", full, err)
	}
	return image, nil
}

// manifest reads a manifest. From an index it selects the one for this platform.
func (c *Client) manifest(ctx context.Context, digest, mediaType string) ([]byte, types.MediaType, error) {
	content, err := c.readBlob(ctx, digest)
	if err != nil {
		return nil, "", err
	}
	if !types.MediaType(mediaType).IsIndex() {
		return content, types.MediaType(mediaType), nil
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(content, &index); err != nil {
		return nil, "", err
	}
	os, architecture := platform()
	for _, candidate := range index.Manifests {
		if candidate.Platform == nil || candidate.Platform.OS == os && candidate.Platform.Architecture == architecture {
			return c.manifest(ctx, candidate.Digest.String(), string(candidate.MediaType))
		}
	}
	return nil, "", fmt.Errorf("it has no %s/%s variant", os, architecture)
}

// blob opens content by digest.
func (c *Client) blob(ctx context.Context, digest string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(inNamespace(ctx))
	stream, err := c.content.Read(ctx, &contentapi.ReadContentRequest{Digest: digest})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("read %s: %w", digest, err)
	}
	return &blobReader{stream: stream, cancel: cancel}, nil
}

func (c *Client) readBlob(ctx context.Context, digest string) ([]byte, error) {
	reader, err := c.blob(ctx, digest)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	return io.ReadAll(reader)
}

// blobReader reads a content stream.
type blobReader struct {
	stream contentapi.Content_ReadClient
	cancel context.CancelFunc
	rest   []byte
}

func (r *blobReader) Read(buffer []byte) (int, error) {
	for len(r.rest) == 0 {
		response, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		r.rest = response.Data
	}
	n := copy(buffer, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *blobReader) Close() error {
	r.cancel()
	return nil
}

// storedImage gives go-containerregistry access to an image in containerd. The library's interfaces
// have no context, so storedImage keeps the context of the call that requested the image.
type storedImage struct {
	ctx       context.Context
	client    *Client
	manifest  []byte
	mediaType types.MediaType
}

func (i *storedImage) MediaType() (types.MediaType, error) { return i.mediaType, nil }
func (i *storedImage) RawManifest() ([]byte, error)        { return i.manifest, nil }

func (i *storedImage) RawConfigFile() ([]byte, error) {
	var manifest v1.Manifest
	if err := json.Unmarshal(i.manifest, &manifest); err != nil {
		return nil, err
	}
	return i.client.readBlob(i.ctx, manifest.Config.Digest.String())
}

func (i *storedImage) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	var manifest v1.Manifest
	if err := json.Unmarshal(i.manifest, &manifest); err != nil {
		return nil, err
	}
	for _, layer := range append(manifest.Layers, manifest.Config) {
		if layer.Digest == digest {
			return &storedLayer{image: i, descriptor: layer}, nil
		}
	}
	return nil, fmt.Errorf("layer %s is not in the image", digest)
}

type storedLayer struct {
	image      *storedImage
	descriptor v1.Descriptor
}

func (l *storedLayer) Digest() (v1.Hash, error)            { return l.descriptor.Digest, nil }
func (l *storedLayer) Size() (int64, error)                { return l.descriptor.Size, nil }
func (l *storedLayer) MediaType() (types.MediaType, error) { return l.descriptor.MediaType, nil }
func (l *storedLayer) Compressed() (io.ReadCloser, error) {
	return l.image.client.blob(l.image.ctx, l.descriptor.Digest.String())
}
