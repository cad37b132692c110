package image

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"
)

// archiveOf packs files as an image archive.
func archiveOf(files map[string]string) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range files {
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
		_, _ = w.Write([]byte(content))
	}
	_ = w.Close()
	return out.Bytes()
}

// fuzzLimits keep an input from taking longer than a test.
var fuzzLimits = Limits{UnpackedBytes: 1 << 20, Entries: 1000, Ratio: 10, RatioFrom: 1 << 16, Layers: 10}

// FuzzArchive rewrites archives that no tool made.
func FuzzArchive(f *testing.F) {
	f.Add(archiveOf(map[string]string{"index.json": `{"manifests":[{"annotations":{"org.opencontainers.image.ref.name":"a:1"}},{}]}`, "blobs/sha256/x": "x"}), "name")
	f.Add(archiveOf(map[string]string{"manifest.json": `[{"Config":"c","RepoTags":["a:b",""],"Layers":null}]`, "repositories": "{}"}), "")
	f.Add([]byte(ociArchive([]string{manifestOf(tarOf(file{name: "a"}))}, tarOf(file{name: "a"}))), "name")
	f.Add(archiveOf(map[string]string{"index.json": "null", "../index.json": "{}", "manifest.json": "[null]"}), "://")
	f.Fuzz(func(t *testing.T, content []byte, name string) {
		from, err := decompress(bytes.NewReader(content))
		if err != nil {
			return
		}
		defer from.Close()
		// Compressed zeros are longer than a test.
		_ = newRewriter(LoadOptions{Name: name, Limits: fuzzLimits}, nil).copy(io.Discard, io.LimitReader(from, 1<<20))
	})
}

// FuzzLayer measures layers that no tool made.
func FuzzLayer(f *testing.F) {
	layer := tarOf(file{name: "a", content: "1"}, file{name: "b", link: "a"})
	for _, seed := range []string{"", "{}", layer, layer[:600], zipped(layer), zstdOf(layer), sparse(1 << 40), "\x50\x2a\x4d\x18\x01\x00\x00\x00x" + zstdOf(layer)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var copied bytes.Buffer
		found, err := copyMeasured(&copied, bytes.NewReader(content), fuzzLimits)
		if err != nil {
			if len(content) > 0 && copied.Len() == len(content) {
				t.Errorf("the whole of a refused layer was copied: %v", err)
			}
			return
		}
		if !bytes.Equal(copied.Bytes(), content) || found.length != int64(len(content)) {
			t.Errorf("%d bytes of %d were copied", copied.Len(), len(content))
		}
		if l := found.layer; l.bytes < 0 || l.bytes > fuzzLimits.UnpackedBytes || l.entries < 0 || l.entries > fuzzLimits.Entries {
			t.Errorf("accepted %+v", l)
		}
	})
}

// FuzzContainerfile parses build files that no person wrote.
func FuzzContainerfile(f *testing.F) {
	f.Add("FROM scratch\nENV A=b \"C D\"=\"e f\"\nRUN a \\\n  b\n# end\n")
	f.Add("ENV a\n\\\n \\")
	f.Add("LABEL 'x\n")
	f.Fuzz(func(t *testing.T, content string) {
		instructions, err := parseContainerfile(content)
		if err != nil {
			return
		}
		for _, i := range instructions {
			if i.line < 1 {
				t.Errorf("instruction %q has line %d", i.name, i.line)
			}
			_ = pairs(i.argument, func(string, string) {})
			_ = eachWord(i.argument, func(string) error { return nil })
		}
	})
}
