package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	"github.com/klauspost/compress/zstd"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// annotationImageName is containerd's annotation for an image's full name in an index.
const annotationImageName = "io.containerd.image.name"

// LoadFile loads an archive (docker or OCI; plain, gzipped or zstd) or an OCI layout folder, and
// returns the loaded names. If name is given, it replaces the name in an archive of one image.
func (c *Client) LoadFile(ctx context.Context, file, name string) ([]string, error) {
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
		return c.load(ctx, reader, name, present)
	}
	present, err := c.presentBlobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", file, err)
	}
	names, err := attempt(present)
	if err != nil && len(present) > 0 && ctx.Err() == nil {
		// Perhaps containerd has garbage-collected a blob that was not sent.
		names, err = attempt(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", file, err)
	}
	return names, nil
}

// Load is LoadFile for a stream.
func (c *Client) Load(ctx context.Context, archive io.Reader, name string) ([]string, error) {
	present, err := c.presentBlobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("load image: %w", err)
	}
	names, err := c.load(ctx, archive, name, present)
	if err != nil {
		return nil, fmt.Errorf("load image: %w", err)
	}
	return names, nil
}

func (c *Client) load(ctx context.Context, archive io.Reader, name string, present map[string]bool) ([]string, error) {
	plain, err := decompress(archive)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	rewriter := &rewriter{name: name, present: present}
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

// decompress detects the compression from the first bytes. A plain tar is returned as it is.
func decompress(archive io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(archive, 1<<20)
	magic, err := buffered.Peek(4)
	if err != nil {
		return nil, fmt.Errorf("not an image archive: %w", err)
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(buffered)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		decoder, err := zstd.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		return decoder.IOReadCloser(), nil
	default:
		return io.NopCloser(buffered), nil
	}
}

// rewriter copies an archive. It leaves out containerd's own blobs and writes every image's full
// name into the index.
type rewriter struct {
	name    string // replaces the archive's name unless empty
	present map[string]bool
	names   []string // names found; valid after copy
}

func (r *rewriter) copy(to io.Writer, from io.Reader) error {
	reader, writer := tar.NewReader(from), tar.NewWriter(to)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return writer.Close()
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if err := r.entry(writer, reader, header); err != nil {
			return err
		}
	}
}

func (r *rewriter) entry(writer *tar.Writer, reader *tar.Reader, header *tar.Header) error {
	name := path.Clean(header.Name)
	var rewrite func([]byte) ([]byte, error)
	switch {
	case name == "index.json":
		rewrite = r.index
	case name == "manifest.json":
		rewrite = r.dockerManifest
	case name == "repositories": // docker's before 1.10; containerd ignores it but would store it
		return nil
	default:
		if algorithm, hash, found := strings.Cut(strings.TrimPrefix(name, "blobs/"), "/"); found && strings.HasPrefix(name, "blobs/") && r.present[algorithm+":"+hash] {
			return nil
		}
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		_, err := io.Copy(writer, reader)
		return err
	}
	content, err := io.ReadAll(io.LimitReader(reader, 20<<20))
	if err != nil {
		return fmt.Errorf("read archive: %s: %w", name, err)
	}
	if content, err = rewrite(content); err != nil {
		return fmt.Errorf("read archive: %s: %w", name, err)
	}
	if err := writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err = writer.Write(content)
	return err
}

// index sets the names of the images of an OCI layout.
func (r *rewriter) index(content []byte) ([]byte, error) {
	var index ocispec.Index
	if err := json.Unmarshal(content, &index); err != nil {
		return nil, err
	}
	r.names = nil // an archive with both kinds of index is an OCI layout
	if r.name != "" && len(index.Manifests) != 1 {
		return nil, fmt.Errorf("a name for an archive of %d images", len(index.Manifests))
	}
	for i, manifest := range index.Manifests {
		full, err := r.fullName(manifest.Annotations)
		if err != nil {
			return nil, err
		}
		if full == "" {
			continue
		}
		if manifest.Annotations == nil {
			index.Manifests[i].Annotations = map[string]string{}
		}
		index.Manifests[i].Annotations[annotationImageName] = full
		r.names = append(r.names, full)
	}
	return json.Marshal(index)
}

// fullName reads an image's name from the annotations of common tools. containerd and docker write
// the full name. Other tools write the full name or only the tag as ref.name; a tag alone is not a
// name.
func (r *rewriter) fullName(annotations map[string]string) (string, error) {
	name := r.name
	if name == "" {
		name = annotations[annotationImageName]
	}
	if refName := annotations[ocispec.AnnotationRefName]; name == "" && strings.ContainsAny(refName, "/:@") {
		name = refName
	}
	if name == "" {
		return "", nil
	}
	return Normalize(name)
}

// dockerManifest sets the names of the images of a docker archive.
func (r *rewriter) dockerManifest(content []byte) ([]byte, error) {
	var manifests []map[string]json.RawMessage
	if err := json.Unmarshal(content, &manifests); err != nil {
		return nil, err
	}
	if r.name != "" && len(manifests) != 1 {
		return nil, fmt.Errorf("a name for an archive of %d images", len(manifests))
	}
	var names []string
	for _, manifest := range manifests {
		var tags []string
		if raw, found := manifest["RepoTags"]; found {
			if err := json.Unmarshal(raw, &tags); err != nil {
				return nil, err
			}
		}
		if r.name != "" {
			tags = []string{r.name}
		}
		for i, tag := range tags {
			full, err := Normalize(tag)
			if err != nil {
				return nil, err
			}
			tags[i] = full
		}
		names = append(names, tags...)
		raw, err := json.Marshal(tags)
		if err != nil {
			return nil, err
		}
		manifest["RepoTags"] = raw
	}
	if r.names == nil {
		r.names = names
	}
	return json.Marshal(manifests)
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
