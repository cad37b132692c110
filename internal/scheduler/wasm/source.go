package wasm

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/schedulerplugin"
)

// mediaTypes are those of layers with a module.
var mediaTypes = []string{"application/wasm", "application/vnd.wasm.content.layer.v1+wasm", "application/vnd.module.wasm.content.layer.v1+wasm"}

// loadError is an error with the reason in the condition.
type loadError struct {
	reason string
	err    error
}

func (e loadError) Error() string { return e.err.Error() }
func (e loadError) Unwrap() error { return e.err }

// sources reads modules.
type sources struct {
	client client.Interface
	folder string // of files
}

// read returns the module of a spec. Its content has the digest of the spec.
func (s *sources) read(ctx context.Context, spec *schedulerplugin.Spec) ([]byte, error) {
	content, err := s.content(ctx, spec)
	if err != nil {
		return nil, loadError{schedulerplugin.ReasonUnavailable, err}
	}
	sum := sha256.Sum256(content)
	if found := hex.EncodeToString(sum[:]); found != spec.SHA256 {
		return nil, loadError{schedulerplugin.ReasonDigest, fmt.Errorf("spec.sha256 is %s: the content at the source has %s", spec.SHA256, found)}
	}
	module, err := unpack(content)
	if err != nil {
		return nil, loadError{schedulerplugin.ReasonModule, err}
	}
	return module, nil
}

func (s *sources) content(ctx context.Context, spec *schedulerplugin.Spec) ([]byte, error) {
	switch source := spec.Source; {
	case source.File != "":
		return s.file(source.File)
	case source.OCI != "":
		return artifact(ctx, source.OCI, spec.SHA256)
	case source.ConfigMap != nil:
		return s.configMap(ctx, source.ConfigMap)
	}
	return nil, errors.New("spec.source is empty: one of file, oci and configMap must be set")
}

// file reads a file of the folder. The name cannot leave the folder.
func (s *sources) file(name string) ([]byte, error) {
	if s.folder == "" {
		return nil, errors.New("spec.source.file cannot be used: this scheduler has no data folder")
	}
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return nil, fmt.Errorf("spec.source.file is %q: the name of a file in %s is needed", name, s.folder)
	}
	f, err := os.Open(filepath.Join(s.folder, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bounded(f)
}

// bounded reads a module, and no more than a module may have.
func bounded(r io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, MaxModule+1))
	if err == nil && len(content) > MaxModule {
		return nil, fmt.Errorf("the content has more than %d bytes", MaxModule)
	}
	return content, err
}

func (s *sources) configMap(ctx context.Context, at *schedulerplugin.ConfigMapKey) ([]byte, error) {
	m, err := client.Get[*corev1.ConfigMap](ctx, s.client, metav1.NamespaceSystem, at.Name)
	if err != nil {
		return nil, err
	}
	content, ok := m.BinaryData[at.Key]
	if !ok {
		return nil, fmt.Errorf("ConfigMap %s/%s has no key %q in binaryData", metav1.NamespaceSystem, at.Name, at.Key)
	}
	return content, nil
}

// artifact pulls the layer with the digest, or else the only layer with a module, from a registry.
func artifact(ctx context.Context, reference, digest string) ([]byte, error) {
	parsed, err := name.ParseReference(reference)
	if err != nil {
		return nil, fmt.Errorf("spec.source.oci: %w", err)
	}
	image, err := remote.Image(parsed, remote.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", parsed, err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", parsed, err)
	}
	layer, err := moduleLayer(manifest.Layers, digest)
	if err != nil {
		return nil, fmt.Errorf("artifact %s: %w", parsed, err)
	}
	if layer.Size > MaxModule {
		return nil, fmt.Errorf("artifact %s: the layer has %d bytes: at most %d are allowed", parsed, layer.Size, MaxModule)
	}
	blob, err := remote.Layer(parsed.Context().Digest(layer.Digest.String()), remote.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", parsed, err)
	}
	content, err := blob.Compressed()
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", parsed, err)
	}
	defer content.Close()
	return bounded(content)
}

func moduleLayer(layers []v1.Descriptor, digest string) (v1.Descriptor, error) {
	for _, l := range layers {
		if l.Digest.Algorithm == "sha256" && l.Digest.Hex == digest {
			return l, nil
		}
	}
	modules := slices.DeleteFunc(slices.Clone(layers), func(l v1.Descriptor) bool { return !slices.Contains(mediaTypes, string(l.MediaType)) })
	if len(modules) != 1 {
		return v1.Descriptor{}, fmt.Errorf("it has %d layers with a module, and none with the digest in spec.sha256: one of the media types %s is needed",
			len(modules), strings.Join(mediaTypes, ", "))
	}
	return modules[0], nil
}

// unpack unpacks content that gzip has compressed, as in a ConfigMap, which holds 1 MiB.
func unpack(content []byte) ([]byte, error) {
	if !bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
		return content, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("unpack the content: %w", err)
	}
	module, err := bounded(r)
	if err != nil {
		return nil, fmt.Errorf("unpack the content: %w", err)
	}
	return module, nil
}
