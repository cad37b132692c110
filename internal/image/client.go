package image

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	streamingapi "github.com/containerd/containerd/api/services/streaming/v1"
	transferapi "github.com/containerd/containerd/api/services/transfer/v1"
	"github.com/distribution/reference"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// namespace is CRI's namespace inside containerd.
const namespace = "k8s.io"

// Client is a connection to containerd. It is safe for concurrent use.
type Client struct {
	connection *grpc.ClientConn
	content    contentapi.ContentClient
	images     imagesapi.ImagesClient
	leases     leasesapi.LeasesClient
	streams    streamingapi.StreamingClient
	transfers  transferapi.TransferClient
	cri        criapi.ImageServiceClient
}

// Dial connects to containerd's socket (cri.Runtime.Socket).
func Dial(socket string) (*Client, error) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20), grpc.MaxCallSendMsgSize(16<<20)))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd at %s: %w", socket, err)
	}
	return &Client{
		connection: connection,
		content:    contentapi.NewContentClient(connection),
		images:     imagesapi.NewImagesClient(connection),
		leases:     leasesapi.NewLeasesClient(connection),
		streams:    streamingapi.NewStreamingClient(connection),
		transfers:  transferapi.NewTransferClient(connection),
		cri:        criapi.NewImageServiceClient(connection),
	}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.connection.Close() }

// inNamespace puts calls into CRI's namespace.
func inNamespace(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

// platform returns this machine's platform for images, in Go's terms.
func platform() (os, architecture string) { return "linux", runtime.GOARCH }

// Normalize completes a reference with registry, repository and tag: "nginx" is
// docker.io/library/nginx:latest.
func Normalize(name string) (string, error) {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", fmt.Errorf("image reference %q: %w", name, err)
	}
	return named.String(), nil
}

// Image is one line of a listing: an image and its names.
type Image struct {
	ID    string // digest of its configuration
	Names []string
	Size  uint64 // bytes, compressed
}

// List returns the images, sorted by their first name. An empty filter selects all.
func (c *Client) List(ctx context.Context, filter string) ([]Image, error) {
	response, err := c.cri.ListImages(ctx, &criapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var images []Image
	for _, known := range response.Images {
		image := Image{ID: known.Id, Names: slices.Sorted(slices.Values(known.RepoTags)), Size: known.Size}
		if len(image.Names) == 0 {
			image.Names = slices.Sorted(slices.Values(known.RepoDigests))
		}
		if filter == "" || slices.ContainsFunc(image.Names, func(name string) bool { return strings.Contains(name, filter) }) {
			images = append(images, image)
		}
	}
	slices.SortFunc(images, func(a, b Image) int {
		return strings.Compare(strings.Join(a.Names, " "), strings.Join(b.Names, " "))
	})
	return images, nil
}

// Remove removes one name. An image without names is deleted with its layers; running containers
// keep theirs.
func (c *Client) Remove(ctx context.Context, name string) error {
	full, err := c.find(ctx, name)
	if err != nil {
		return fmt.Errorf("remove image: %w", err)
	}
	if _, err := c.images.Delete(inNamespace(ctx), &imagesapi.DeleteImageRequest{Name: full, Sync: true}); err != nil {
		return fmt.Errorf("remove image %s: %w", full, err)
	}
	return c.forgetIDs(ctx)
}

// forgetIDs removes the records that CRI adds to every image under the configuration's digest, if
// no name is left.
func (c *Client) forgetIDs(ctx context.Context) error {
	response, err := c.images.List(inNamespace(ctx), &imagesapi.ListImagesRequest{})
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	named := map[string]bool{} // by manifest digest
	for _, image := range response.Images {
		if !strings.HasPrefix(image.Name, "sha256:") && !strings.Contains(image.Name, "@") {
			named[image.Target.Digest] = true
		}
	}
	for _, image := range response.Images {
		if named[image.Target.Digest] || !strings.HasPrefix(image.Name, "sha256:") {
			continue
		}
		if _, err := c.images.Delete(inNamespace(ctx), &imagesapi.DeleteImageRequest{Name: image.Name, Sync: true}); err != nil && status.Code(err) != codes.NotFound {
			return fmt.Errorf("remove image %s: %w", image.Name, err)
		}
	}
	return nil
}

// find resolves the user's input to a name in containerd.
func (c *Client) find(ctx context.Context, name string) (string, error) {
	candidates := []string{name}
	if full, err := Normalize(name); err == nil && full != name {
		candidates = append(candidates, full)
	}
	for _, candidate := range candidates {
		_, err := c.images.Get(inNamespace(ctx), &imagesapi.GetImageRequest{Name: candidate})
		if err == nil {
			return candidate, nil
		}
		if status.Code(err) != codes.NotFound {
			return "", fmt.Errorf("image %s: %w", candidate, err)
		}
	}
	return "", fmt.Errorf("image %s: not found", name)
}

// waitVisible waits until CRI knows the names. It learns of new images by events.
func (c *Client) waitVisible(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, name := range names {
		for {
			response, err := c.cri.ImageStatus(ctx, &criapi.ImageStatusRequest{Image: &criapi.ImageSpec{Image: name}})
			if err == nil && response.Image != nil {
				break
			}
			select {
			case <-ctx.Done():
				return errors.Join(fmt.Errorf("image %s was loaded, but the runtime does not list it", name), err)
			case <-time.After(2 * time.Millisecond):
			}
		}
	}
	return nil
}
