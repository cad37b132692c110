package main

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// tree lists the changed and new files of a work tree according to git: each file's state and the
// hash of its content, by path.
type tree map[string]string

// readTree reads the state of a work tree, without ignored files.
func readTree(dir string) (tree, error) {
	cmd := exec.Command("git", "-C", dir, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git status: %w", err)
	}
	t := tree{}
	for _, entry := range strings.Split(string(out), "\x00") {
		if len(entry) < 4 {
			continue
		}
		path := entry[3:]
		content, _ := os.ReadFile(dir + "/" + path) // removed files have no content
		t[path] = fmt.Sprintf("%s %x", entry[:2], sha256.Sum256(content))
	}
	return t, nil
}

// changes names the files that differ in a later state.
func (t tree) changes(later tree) []string {
	differ := map[string]bool{}
	for path, is := range later {
		if t[path] != is {
			differ[path] = true
		}
	}
	for path := range t {
		if _, ok := later[path]; !ok {
			differ[path] = true
		}
	}
	return slices.Sorted(maps.Keys(differ))
}
