package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGuidesShowWhatCommandsPrint runs the commands of guides that need no cluster, over their
// files.
func TestGuidesShowWhatCommandsPrint(t *testing.T) {
	for _, guide := range []string{"docs/guides/check.md", "docs/guides/explain.md"} {
		t.Run(guide, func(t *testing.T) { runGuide(t, guide) })
	}
}

func runGuide(t *testing.T, guide string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "knarr")); err != nil {
		t.Fatal(err)
	}
	var page *Page
	for _, p := range pages(t) {
		if p.Path == guide {
			page = p
		}
	}
	text := strings.Join(page.Lines, "\n")
	for _, b := range page.Blocks {
		if name, content, ok := b.File(); ok {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range b.Steps() {
			cmd := exec.Command("bash", "-c", s.Command)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), asKnarr+"=1", "PATH="+bin+":"+os.Getenv("PATH"))
			out, _ := cmd.CombinedOutput() // findings are the exit status
			got := strings.TrimSuffix(string(out), "\n")
			want := strings.Join(b.Lines[1:], "\n")
			if *update {
				old := "$ " + s.Command + "\n"
				if want != "" {
					old += want + "\n"
				}
				text = strings.Replace(text, old+"```", "$ "+s.Command+"\n"+got+"\n```", 1)
			} else if got != want {
				t.Errorf("%s:%d: %s prints\n%s\nnot\n%s", guide, s.Line, s.Command, got, want)
			}
		}
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, guide), []byte(strings.TrimRight(text, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
