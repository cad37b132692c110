package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// rewriter copies an archive. It leaves out containerd's own blobs, writes every image's full name
// into the index, and checks what the archive unpacks to.
type rewriter struct {
	name    string // replaces the archive's name unless empty
	present map[string]bool
	content *content
	plan    *plan
	layout  document      // the images of an OCI layout
	docker  []dockerImage // the images of docker's manifest.json
	names   []string      // names found; valid after copy
}

// dockerImage is an image of docker's manifest.json. It names files of the archive.
type dockerImage struct {
	Config string
	Layers []string
}

func newRewriter(options LoadOptions, present map[string]bool) *rewriter {
	content := newContent(options.Limits)
	return &rewriter{name: options.Name, present: present, content: content, plan: content.plan()}
}

// copy ends the tar only if all of it is within the limits: containerd unpacks nothing before.
func (r *rewriter) copy(to io.Writer, from io.Reader) error {
	reader, writer := tar.NewReader(from), tar.NewWriter(to)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if err := r.entry(writer, reader, header); err != nil {
			return fmt.Errorf("read archive: %.200s: %w", header.Name, err)
		}
	}
	if err := r.checkImages(); err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	return writer.Close()
}

func (r *rewriter) checkImages() error {
	err := r.plan.index(r.layout, 0)
	for _, image := range r.docker {
		if err != nil {
			return err
		}
		err = r.plan.dockerImage(image.Config, image.Layers)
	}
	return err
}

func (r *rewriter) entry(writer *tar.Writer, reader *tar.Reader, header *tar.Header) error {
	name := path.Clean(header.Name)
	switch header.Typeflag {
	case tar.TypeReg:
	case tar.TypeSymlink: // an older docker's name for another image's layer
		r.content.links[header.Name] = path.Join(path.Dir(header.Name), header.Linkname)
		if err := r.content.enter(name, 0); err != nil {
			return err
		}
		return writer.WriteHeader(header)
	default: // containerd ignores it
		return nil
	}
	if err := r.content.enter(name, header.Size); err != nil {
		return err
	}
	switch name {
	case "index.json":
		return r.document(writer, reader, name, r.index)
	case "manifest.json":
		return r.document(writer, reader, name, r.dockerManifest)
	case ocispec.ImageLayoutFile:
		return r.document(writer, reader, name, func(content []byte) ([]byte, error) { return content, nil })
	case "repositories": // docker's before 1.10; containerd ignores it but would store it
		return nil
	}
	return r.blob(writer, reader, name, header)
}

// blob copies a layer, a manifest or a configuration, unless containerd has it.
func (r *rewriter) blob(writer *tar.Writer, reader *tar.Reader, name string, header *tar.Header) error {
	digest := ""
	if algorithm, hash, found := strings.Cut(strings.TrimPrefix(name, "blobs/"), "/"); found && strings.HasPrefix(name, "blobs/") {
		digest = algorithm + ":" + hash
	}
	to := io.Discard
	if !r.present[digest] {
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		to = writer
	}
	found, err := copyMeasured(to, reader, r.content.limits)
	if err != nil {
		return err
	}
	if strings.HasPrefix(digest, "sha256:") && digest != found.digest {
		return fmt.Errorf("the content has the digest %s", found.digest)
	}
	return r.content.add(name, found)
}

// document rewrites one of the archive's own documents.
func (r *rewriter) document(writer *tar.Writer, reader io.Reader, name string, rewrite func([]byte) ([]byte, error)) error {
	if err := r.content.once(name); err != nil {
		return err
	}
	content, err := io.ReadAll(io.LimitReader(reader, maxDocument+1))
	if err == nil {
		err = check(fieldDocument, int64(len(content)), maxDocument)
	}
	if err == nil {
		content, err = rewrite(content)
	}
	if err != nil {
		return err
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
	if err := check(fieldManifests, int64(len(index.Manifests)), maxManifests); err != nil {
		return nil, err
	}
	r.names = nil // an archive with both kinds of index is an OCI layout
	if r.name != "" && len(index.Manifests) != 1 {
		return nil, fmt.Errorf("a name for an archive of %d images", len(index.Manifests))
	}
	for i, manifest := range index.Manifests {
		r.layout.Manifests = append(r.layout.Manifests, descriptor{Digest: string(manifest.Digest)})
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
	if err := check(fieldManifests, int64(len(manifests)), maxManifests); err != nil {
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
	content, err := json.Marshal(manifests)
	if err != nil {
		return nil, err
	}
	// Names of fields match in any case, and the last one counts. So decode what containerd reads.
	return content, json.Unmarshal(content, &r.docker)
}
