package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// file is one entry of a made tar.
type file struct {
	name, content string
	link          string // makes the entry a symbolic link
}

func tarOf(files ...file) string {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.content))}
		if f.link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.link
		}
		_ = w.WriteHeader(header)
		_, _ = io.WriteString(w, f.content)
	}
	_ = w.Close()
	return out.String()
}

func zipped(content string) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = io.WriteString(w, content)
	_ = w.Close()
	return out.String()
}

func zstdOf(content string) string {
	w, _ := zstd.NewWriter(nil)
	return string(w.EncodeAll([]byte(content), nil))
}

// sparse is a tar with one file of the size, in GNU's format for files with holes. The file is one
// hole, so the tar has no content of it. The header ends with the file's parts and its real size.
func sparse(size int64) string {
	header := make([]byte, 512)
	copy(header, "hole")
	copy(header[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00        S")
	copy(header[257:], "ustar  \x00")
	copy(header[398:], "00000000000\x00") // the length of the one part, which begins at the end
	big := make([]byte, 12)
	big[0] = 0x80
	for i := range 8 {
		big[11-i] = byte(size >> (8 * i))
	}
	copy(header[386:], big)
	copy(header[483:], big)
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
	return string(header) + strings.Repeat("\x00", 1024)
}

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func blobFile(content string) file {
	return file{name: "blobs/sha256/" + strings.TrimPrefix(digestOf(content), "sha256:"), content: content}
}

// descriptors writes a list of an index or a manifest.
func descriptors(contents ...string) string {
	var list []string
	for _, content := range contents {
		list = append(list, fmt.Sprintf(`{"digest":%q,"size":%d}`, digestOf(content), len(content)))
	}
	return "[" + strings.Join(list, ",") + "]"
}

func manifestOf(layers ...string) string {
	return `{"config":{"digest":"sha256:0"},"layers":` + descriptors(layers...) + `}`
}

func indexOf(manifests ...string) string { return `{"manifests":` + descriptors(manifests...) + `}` }

// ociArchive is an OCI layout of the manifests with the blobs.
func ociArchive(manifests []string, blobs ...string) string {
	files := []file{{name: "oci-layout", content: `{"imageLayoutVersion":"1.0.0"}`}}
	for _, content := range append(blobs, manifests...) {
		files = append(files, blobFile(content))
	}
	return tarOf(append(files, file{name: "index.json", content: indexOf(manifests...)})...)
}

func many(n int, make func(i int) string) []string {
	var out []string
	for i := range n {
		out = append(out, make(i))
	}
	return out
}

func TestAnArchiveIsRefusedByTheLimitThatItExceeds(t *testing.T) {
	limits := Limits{UnpackedBytes: 100_000, Entries: 50, Ratio: 5, RatioFrom: 1 << 20, Layers: 10}
	small := tarOf(file{name: "a", content: "a"})
	big := tarOf(file{name: "a", content: strings.Repeat("a", 60_000)})
	zeros := strings.Repeat("\x00", 200_000)
	entries := tarOf(make([]file, 51)...)
	deep := tarOf(file{name: strings.Repeat("a/", 2100) + "a"})
	linked := tarOf(file{name: "a", link: strings.Repeat("a/", 2100)})
	nested := manifestOf(small)
	blobs := []string{small, nested}
	for range maxDepth + 1 {
		nested = indexOf(nested)
		blobs = append(blobs, nested)
	}
	wide := indexOf(many(40, func(int) string { return manifestOf(small) })...)
	for name, c := range map[string]struct{ archive, field string }{
		"a layer's files":                   {ociArchive([]string{manifestOf()}, tarOf(file{name: "a", content: zeros})), FieldUnpackedBytes},
		"a gzipped layer":                   {ociArchive(nil, zipped(tarOf(file{name: "a", content: zeros}))), FieldUnpackedBytes},
		"a zstd layer":                      {ociArchive(nil, zstdOf(tarOf(file{name: "a", content: zeros}))), FieldUnpackedBytes},
		"content behind the layer's end":    {ociArchive(nil, zipped(small+zeros)), FieldUnpackedBytes},
		"a sparse file":                     {ociArchive(nil, sparse(1<<40)), FieldUnpackedBytes},
		"a sparse file, whose size is huge": {ociArchive(nil, sparse(1<<62)), FieldUnpackedBytes},
		"two layers":                        {ociArchive(nil, big, big[:1024]+strings.Repeat("b", 59_000)+big[60_024:]), FieldUnpackedBytes},
		"one layer, several times":          {ociArchive([]string{manifestOf(big, small, big)}, big, small), FieldUnpackedBytes},
		"one layer in several images":       {ociArchive([]string{manifestOf(big), manifestOf(small, big)}, big, small), FieldUnpackedBytes},
		"a layer outside of the blobs":      {tarOf(file{name: "x/layer.tar", content: big}, file{name: "manifest.json", content: `[{"Config":"c","Layers":["x/layer.tar","x/layer.tar"]}]`}), FieldUnpackedBytes},
		"a layer by a link": {tarOf(file{name: "x/layer.tar", content: big}, file{name: "y/layer.tar", link: "../x/layer.tar"},
			file{name: "manifest.json", content: `[{"Config":"c","layers":["y/layer.tar","x/layer.tar"]}]`}), FieldUnpackedBytes},
		"the archive's own content":  {ociArchive(nil, strings.Repeat("no layer", 13_000)), FieldUnpackedBytes},
		"entries":                    {ociArchive(nil, entries), FieldEntries},
		"entries, gzipped":           {ociArchive(nil, zipped(entries)), FieldEntries},
		"a long path":                {ociArchive(nil, deep), fieldPath},
		"a long link":                {ociArchive(nil, linked), fieldPath},
		"layers of an image":         {ociArchive([]string{manifestOf(many(11, func(int) string { return small })...)}, small), FieldLayers},
		"layers in docker's archive": {tarOf(file{name: "l", content: small}, file{name: "manifest.json", content: `[{"Layers":["l","l","l","l","l","l","l","l","l","l","l"]}]`}), FieldLayers},
		"indexes in one another":     {ociArchive([]string{nested}, blobs...), fieldDepth},
		"indexes that multiply":      {tarOf(blobFile(small), blobFile(manifestOf(small)), blobFile(wide), file{name: "index.json", content: indexOf(many(40, func(int) string { return wide })...)}), fieldManifests},
		"images of an index":         {tarOf(file{name: "index.json", content: `{"manifests":[{}` + strings.Repeat(",{}", 1000) + `]}`}), fieldManifests},
		"images of docker's archive": {tarOf(file{name: "manifest.json", content: `[{}` + strings.Repeat(",{}", 1000) + `]`}), fieldManifests},
		"the size of the index":      {tarOf(file{name: "index.json", content: `{}` + strings.Repeat(" ", maxDocument)}), FieldUnpackedBytes},
		"a manifest behind spaces":   {ociArchive([]string{strings.Repeat(" ", 30_000) + manifestOf(big, small, big)}, big, small), FieldUnpackedBytes},
		"files of the archive":       {tarOf(make([]file, maxBlobs+1)...), fieldBlobs},
	} {
		t.Run(name, func(t *testing.T) {
			err := newRewriter(LoadOptions{Limits: limits}, nil).copy(io.Discard, strings.NewReader(c.archive))
			var limit *LimitError
			if !errors.As(err, &limit) || limit.Field != c.field || limit.Value <= limit.Allowed {
				t.Fatalf("got %v, want a limit of %s", err, c.field)
			}
			if text := err.Error(); !strings.Contains(text, c.field) || !strings.Contains(text, fmt.Sprint(limit.Value)) || !strings.Contains(text, fmt.Sprint(limit.Allowed)) {
				t.Errorf("the error names field, value and limit? %s", text)
			}
		})
	}
}

func TestOnlyALargeLayerHasALimitedRatio(t *testing.T) {
	limits := DefaultLimits
	limits.RatioFrom = 100_000
	zeros := func(n int) string { return tarOf(file{name: "a", content: strings.Repeat("\x00", n)}) }
	for name, c := range map[string]struct {
		layer string
		ratio int64
		field string
	}{
		"a large layer":                     {zipped(zeros(400_000)), 100, FieldRatio},
		"a large layer, by zstd":            {zstdOf(zeros(400_000)), 100, FieldRatio},
		"a large layer with a larger limit": {zipped(zeros(400_000)), 1200, ""},
		"a large layer as a plain tar":      {zeros(400_000), 100, ""},
		"a small layer":                     {zipped(zeros(90_000)), 100, ""},
	} {
		limits.Ratio = c.ratio
		found, err := measure(strings.NewReader(c.layer), limits)
		var limit *LimitError
		switch {
		case c.field == "" && (err != nil || found.entries != 1 || found.bytes < 90_000):
			t.Errorf("%s: %+v, %v", name, found, err)
		case c.field != "" && (!errors.As(err, &limit) || limit.Field != c.field || limit.Allowed != c.ratio):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDocumentsOfAnArchiveAreSmall(t *testing.T) {
	layer := tarOf(file{name: "a", content: "1"})
	large := manifestOf(layer)
	large = large[:len(large)-1] + strings.Repeat(" ", maxDocument) + "}"
	config := "{" + strings.Repeat(" ", maxDocument) + "}"
	for name, archive := range map[string]string{
		"the index":        tarOf(file{name: "index.json", content: config}),
		"docker's index":   tarOf(file{name: "manifest.json", content: config}),
		"a manifest":       ociArchive([]string{large}, layer),
		"a configuration":  ociArchive([]string{`{"config":` + strings.Trim(descriptors(config), "[]") + `,"layers":` + descriptors(layer) + `}`}, layer, config),
		"docker's of both": tarOf(file{name: "c", content: config}, file{name: "manifest.json", content: `[{"Config":"c"}]`}),
	} {
		err := newRewriter(LoadOptions{Limits: DefaultLimits}, nil).copy(io.Discard, strings.NewReader(archive))
		var limit *LimitError
		if !errors.As(err, &limit) || limit.Field != fieldDocument {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A document that nothing refers to is a blob as any other.
	if err := newRewriter(LoadOptions{Limits: DefaultLimits}, nil).copy(io.Discard, strings.NewReader(ociArchive([]string{manifestOf(layer)}, layer, config))); err != nil {
		t.Error(err)
	}
}

func TestWithinTheLimitsAnArchiveIsCopied(t *testing.T) {
	layer := tarOf(file{name: "a", content: "1"}, file{name: "b", link: "a"})
	packed, other := zipped(layer), strings.Repeat(`{"predicate":"x"}`, 50_000)
	manifest := manifestOf(layer, packed, layer)
	from := ociArchive([]string{manifest}, layer, packed, other, "", "no layer", zstdOf("no layer either"))
	var to bytes.Buffer
	r := newRewriter(LoadOptions{Limits: DefaultLimits, Name: "app:1"}, nil)
	if err := r.copy(&to, strings.NewReader(from)); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(&to); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
	for _, want := range []string{layer, packed, other, manifest} {
		if f := blobFile(want); files[f.name] != want {
			t.Errorf("%s has changed", f.name)
		}
	}
	if !strings.Contains(files["index.json"], "docker.io/library/app:1") {
		t.Errorf("index: %s", files["index.json"])
	}
	// Three layers are unpacked on top of one another.
	if r.plan.total.entries != 6 || r.plan.total.bytes != 3*int64(len(layer)) {
		t.Errorf("counted %+v", r.plan.total)
	}
}

func TestADamagedArchiveIsRefused(t *testing.T) {
	layer := tarOf(file{name: "a", content: "1"})
	for name, archive := range map[string]string{
		"a blob with another digest":    tarOf(file{name: blobFile("a").name, content: "b"}),
		"two indexes":                   tarOf(file{name: "index.json", content: "{}"}, file{name: "./index.json", content: "{}"}),
		"a layer that ends early":       ociArchive(nil, tarOf(file{name: "a", content: strings.Repeat("a", 1000)})[:700]),
		"a gzipped layer, without end":  ociArchive(nil, zipped(layer)[:40]),
		"an absent layer, used twice":   ociArchive([]string{manifestOf("x", "x")}),
		"zstd with a history too large": ociArchive(nil, "\x28\xb5\x2f\xfd\x00\xb8"+strings.Repeat("\x00", 8)),
	} {
		if err := newRewriter(LoadOptions{Limits: DefaultLimits}, nil).copy(io.Discard, strings.NewReader(archive)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLimitsArePositive(t *testing.T) {
	for _, change := range []func(*Limits){
		func(l *Limits) { l.UnpackedBytes = 0 }, func(l *Limits) { l.Entries = -1 }, func(l *Limits) { l.Ratio = 0 }, func(l *Limits) { l.Layers = 0 },
	} {
		limits := DefaultLimits
		change(&limits)
		if err := limits.Validate(); err == nil || !strings.Contains(err.Error(), "allowed are") {
			t.Errorf("%+v: %v", limits, err)
		}
	}
}

func TestNothingIsLeftOfARefusedArchive(t *testing.T) {
	client, _ := startRuntime(t, nil)
	big := zipped(tarOf(file{name: "a", content: strings.Repeat("a", 900_000)}))
	fine := tarOf(file{name: "b", content: strings.Repeat("b", 500_000)})
	archive := ociArchive([]string{manifestOf(fine, big)}, fine, big)
	options := LoadOptions{Name: "bomb:1", Limits: DefaultLimits}
	options.Limits.UnpackedBytes = 1_000_000
	_, err := client.Load(t.Context(), strings.NewReader(archive), options)
	var limit *LimitError
	if !errors.As(err, &limit) || limit.Field != FieldUnpackedBytes {
		t.Fatalf("load: %v", err)
	}
	for _, content := range []string{fine, big} {
		has := func() bool {
			// The end of a lease starts a collection, and waits for it.
			_, done, err := client.leased(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			done(true)
			_, err = client.content.Info(inNamespace(t.Context()), &contentapi.InfoRequest{Digest: digestOf(content)})
			return status.Code(err) != codes.NotFound
		}
		// containerd may still be storing the content.
		for deadline := time.Now().Add(time.Minute); has(); {
			if time.Now().After(deadline) {
				t.Fatalf("containerd still has %s", digestOf(content))
			}
		}
	}
	if found := names(t, client); len(found) != 0 {
		t.Errorf("images: %v", found)
	}
}
