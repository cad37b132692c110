package check

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// replacement replaces one word in one line of a file.
type replacement struct {
	line, column int // from 1; the column counts characters
	old, new     string
}

// replace returns the fix that writes another word in place of a scalar. It returns nil for a
// scalar that is not written in plain or quoted style in one line.
func (o *object) replace(n *goyaml.Node, with string) *replacement {
	const multiline = goyaml.LiteralStyle | goyaml.FoldedStyle
	if n.Kind != goyaml.ScalarNode || n.Style&multiline != 0 || n.Value == "" || o.reference {
		return nil
	}
	return &replacement{n.Line, n.Column, n.Value, with}
}

// apply returns the line with the word replaced; false if the word is not there.
func (r *replacement) apply(line string) (string, bool) {
	runes := []rune(line)
	if r.column < 1 || r.column > len(runes) {
		return line, false
	}
	before, after := string(runes[:r.column-1]), string(runes[r.column-1:])
	for _, quote := range []string{"", `"`, "'"} {
		if rest, ok := strings.CutPrefix(after, quote+r.old+quote); ok {
			return before + quote + r.new + quote + rest, true
		}
	}
	return line, false
}

// Fixed is a file with its fixes.
type Fixed struct {
	Name          string
	Before, After []byte
	Changes       int
}

// Fixes returns the files that the fixes of the findings change, in the order of the findings. Only
// the misspelt words change; comments and layout stay. Standard input has no fixes.
func (r *Report) Fixes() (list []Fixed) {
	byFile := map[string][]*replacement{}
	var names []string
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.fix == nil || strings.HasPrefix(f.File, "<") {
			continue
		}
		if byFile[f.File] == nil {
			names = append(names, f.File)
		}
		byFile[f.File] = append(byFile[f.File], f.fix)
	}
	for _, name := range names {
		fixed := Fixed{Name: name, Before: r.contents[name]}
		lines := strings.SplitAfter(string(fixed.Before), "\n")
		fixes := byFile[name]
		// From the end of a line to its start: an earlier word keeps its column.
		slices.SortFunc(fixes, func(a, b *replacement) int {
			if a.line != b.line {
				return a.line - b.line
			}
			return b.column - a.column
		})
		for _, fix := range slices.Compact(fixes) {
			if fix.line > len(lines) {
				continue
			}
			var ok bool
			if lines[fix.line-1], ok = fix.apply(lines[fix.line-1]); ok {
				fixed.Changes++
			}
		}
		if fixed.Changes > 0 {
			fixed.After = []byte(strings.Join(lines, ""))
			list = append(list, fixed)
		}
	}
	return list
}

// shown is how many unchanged lines a diff shows around a change.
const shown = 3

// Diff returns the change as a unified diff, for patch -p0 and git apply -p0.
func (f *Fixed) Diff() string {
	before, after := bytes.SplitAfter(f.Before, []byte("\n")), bytes.SplitAfter(f.After, []byte("\n"))
	if n := len(before); len(before[n-1]) == 0 {
		before, after = before[:n-1], after[:n-1]
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", f.Name, f.Name)
	for i := 0; i < len(before); {
		if bytes.Equal(before[i], after[i]) {
			i++
			continue
		}
		from, last := max(i-shown, 0), i
		for j := i; j < len(before) && j <= last+2*shown; j++ {
			if !bytes.Equal(before[j], after[j]) {
				last = j
			}
		}
		to := min(last+shown+1, len(before))
		fmt.Fprintf(&out, "@@ -%d,%d +%d,%d @@\n", from+1, to-from, from+1, to-from)
		writeHunk(&out, before[from:to], after[from:to])
		i = to
	}
	return out.String()
}

// writeHunk writes lines of a diff: runs of changed lines first as they were, then as they are.
func writeHunk(out *strings.Builder, before, after [][]byte) {
	line := func(mark string, text []byte) {
		out.WriteString(mark)
		out.Write(text)
		if !bytes.HasSuffix(text, []byte("\n")) {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
	for i := 0; i < len(before); {
		if bytes.Equal(before[i], after[i]) {
			line(" ", before[i])
			i++
			continue
		}
		end := i
		for end < len(before) && !bytes.Equal(before[end], after[end]) {
			end++
		}
		for _, text := range before[i:end] {
			line("-", text)
		}
		for _, text := range after[i:end] {
			line("+", text)
		}
		i = end
	}
}

// Write replaces the file. It fails if the file has changed since it was read. The file keeps its
// permissions.
func (f *Fixed) Write() error {
	now, err := os.ReadFile(f.Name)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, f.Before) {
		return fmt.Errorf("%s has changed since it was checked; check it again", f.Name)
	}
	path, err := filepath.EvalSymlinks(f.Name)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".knarr-check-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // a no-op after the rename
	_, err = temporary.Write(f.After)
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Chmod(temporary.Name(), info.Mode().Perm())
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
