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

// FuzzArchive rewrites archives that no tool made.
func FuzzArchive(f *testing.F) {
	f.Add(archiveOf(map[string]string{"index.json": `{"manifests":[{"annotations":{"org.opencontainers.image.ref.name":"a:1"}},{}]}`, "blobs/sha256/x": "x"}), "name")
	f.Add(archiveOf(map[string]string{"manifest.json": `[{"Config":"c","RepoTags":["a:b",""],"Layers":null}]`, "repositories": "{}"}), "")
	f.Add(archiveOf(map[string]string{"index.json": "null", "../index.json": "{}", "manifest.json": "[null]"}), "://")
	f.Fuzz(func(t *testing.T, content []byte, name string) {
		from, err := decompress(bytes.NewReader(content))
		if err != nil {
			return
		}
		defer from.Close()
		// Compressed zeros are longer than a test.
		_ = (&rewriter{name: name}).copy(io.Discard, io.LimitReader(from, 1<<20))
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
