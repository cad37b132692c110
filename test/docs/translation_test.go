package docs

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "copy blocks into the Chinese pages, and output into the guide to knarr check")

// TestTranslationsHaveTheSameBlocks checks that a page in Chinese shows the same commands, output
// and files as the one in English.
func TestTranslationsHaveTheSameBlocks(t *testing.T) {
	for _, p := range pages(t) {
		name, ok := strings.CutSuffix(p.Path, ".zh.md")
		if !ok || name == "README" {
			continue
		}
		english, err := ReadPage(root, name+".md")
		if err != nil {
			t.Errorf("%s translates nothing: %v", p.Path, err)
			continue
		}
		var original []Block
		for _, b := range english.Blocks {
			if !b.Has("hidden") {
				original = append(original, b)
			}
		}
		if len(p.Blocks) != len(original) {
			t.Errorf("%s has %d blocks, the English page %d", p.Path, len(p.Blocks), len(original))
			continue
		}
		if *update {
			copyBlocks(t, p, original)
			continue
		}
		for i, b := range p.Blocks {
			if b.Language != original[i].Language || !slices.Equal(b.Lines, original[i].Lines) {
				t.Errorf("%s:%d: the block differs from %s:%d; go test ./test/docs -run Translations -update copies it",
					p.Path, b.Line, english.Path, original[i].Line)
			}
		}
	}
}

func copyBlocks(t *testing.T, p *Page, original []Block) {
	t.Helper()
	var out []string
	line := 0
	for i, b := range p.Blocks {
		out = append(out, p.Lines[line:b.Line]...)
		out = append(out, original[i].Lines...)
		line = b.Line + len(b.Lines)
	}
	out = append(out, p.Lines[line:]...)
	if err := os.WriteFile(filepath.Join(root, p.Path), []byte(strings.Join(out, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
