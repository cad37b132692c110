package image

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// annotationImageName is containerd's annotation for an image's full name in an index.
const annotationImageName = "io.containerd.image.name"

// LoadOptions are settings of a load.
type LoadOptions struct {
	// Name replaces the name in an archive of one image.
	Name string
	// Limits is DefaultLimits by default.
	Limits Limits
}

func (o LoadOptions) complete() (LoadOptions, error) {
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits
	}
	return o, o.Limits.Validate()
}

// LoadFile loads an archive (docker or OCI; plain, gzipped or zstd) or an OCI layout folder, and
// returns the loaded names. The error of an archive that exceeds a limit is a *LimitError.
func (c *Client) LoadFile(ctx context.Context, file string, options LoadOptions) ([]string, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("load image: %w", err)
	}
	open := func() (io.ReadCloser, error) { return os.Open(file) }
	if info.IsDir() {
		open = func() (io.ReadCloser, error) { return tarFolder(file) }
	}
	attempt := func(present map[string]bool) ([]string, error) {
		reader, err := open()
		if err != nil {
			return nil, err
		}
		defer reader.Close()
		return c.load(ctx, reader, options, present)
	}
	present, err := c.presentBlobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", file, err)
	}
	names, err := attempt(present)
	var limit *LimitError
	if err != nil && len(present) > 0 && ctx.Err() == nil && !errors.As(err, &limit) {
		// Perhaps containerd has garbage-collected a blob that was not sent.
		names, err = attempt(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", file, err)
	}
	return names, nil
}

// Load is LoadFile for a stream.
func (c *Client) Load(ctx context.Context, archive io.Reader, options LoadOptions) ([]string, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	present, err := c.presentBlobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("load image: %w", err)
	}
	names, err := c.load(ctx, archive, options, present)
	if err != nil {
		return nil, fmt.Errorf("load image: %w", err)
	}
	return names, nil
}

func (c *Client) load(ctx context.Context, archive io.Reader, options LoadOptions, present map[string]bool) ([]string, error) {
	plain, err := decompress(archive)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	rewriter := newRewriter(options, present)
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := rewriter.copy(writer, plain)
		writer.CloseWithError(err)
		done <- err
	}()
	err = c.transfer(ctx, reader)
	reader.CloseWithError(errors.New("containerd stopped reading"))
	if copyErr := <-done; err == nil {
		err = copyErr
	}
	if err != nil {
		return nil, err
	}
	if len(rewriter.names) == 0 {
		return nil, errors.New("the archive holds an image without a name: give it one with --name")
	}
	return rewriter.names, c.waitVisible(ctx, rewriter.names)
}

// presentBlobs lists containerd's blobs, which need not be sent.
func (c *Client) presentBlobs(ctx context.Context) (map[string]bool, error) {
	stream, err := c.content.List(inNamespace(ctx), &contentapi.ListContentRequest{})
	if err != nil {
		return nil, fmt.Errorf("list content: %w", err)
	}
	present := map[string]bool{}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return present, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list content: %w", err)
		}
		for _, info := range response.Info {
			present[info.Digest] = true
		}
	}
}

// decompress returns the plain tar of an archive.
func decompress(archive io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(archive, 1<<20)
	if _, err := buffered.Peek(4); err != nil {
		return nil, fmt.Errorf("not an image archive: %w", err)
	}
	plain, _, err := decompressor(buffered)
	return plain, err
}

// tarFolder streams an OCI layout folder as a tar.
func tarFolder(folder string) (io.ReadCloser, error) {
	if _, err := os.Stat(path.Join(folder, ocispec.ImageLayoutFile)); err != nil {
		return nil, fmt.Errorf("%s is a folder but not an OCI layout (to make an image from a folder use `knarr image build`): %w", folder, err)
	}
	reader, writer := io.Pipe()
	go func() {
		archive := tar.NewWriter(writer)
		err := archive.AddFS(os.DirFS(folder))
		if err == nil {
			err = archive.Close()
		}
		writer.CloseWithError(err)
	}()
	return reader, nil
}
