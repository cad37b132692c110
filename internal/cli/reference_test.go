package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTheReferenceIsCurrent(t *testing.T) {
	for name, want := range Reference() {
		got, err := os.ReadFile(filepath.Join("../../docs/reference", name))
		if err != nil || string(got) != want {
			t.Errorf("docs/reference/%s is not what the commands say (%v): run make docs", name, err)
		}
	}
}

func TestTheReferenceIsReadable(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)`)
	for name, text := range Reference() {
		for line := range strings.SplitSeq(text, "\n") {
			cells := strings.Split(line, " | ")
			if !strings.HasPrefix(line, "| ") {
				if len(line) > width && !strings.HasPrefix(line, "- [`") {
					t.Errorf("%s: a line is wider than %d columns: %s", name, width, line)
				}
				cells = nil
			}
			for _, cell := range cells {
				if words := len(strings.Fields(strings.Trim(cell, "| "))); words > 15 {
					t.Errorf("%s: a cell has %d words: %s", name, words, cell)
				}
			}
			for _, to := range link.FindAllStringSubmatch(line, -1) {
				if _, err := os.Stat(filepath.Join("../../docs/reference", to[1])); err != nil {
					t.Errorf("%s: a link leads nowhere: %v", name, err)
				}
			}
		}
	}
}
