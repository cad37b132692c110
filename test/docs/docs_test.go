package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const root = "../.."

func pages(t *testing.T) []*Page {
	t.Helper()
	all, err := AllPages(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d pages found", len(all))
	}
	return all
}

// TestLinksResolve checks that linked files exist, and linked parts of pages have a heading.
func TestLinksResolve(t *testing.T) {
	all := pages(t)
	anchors := map[string]map[string]bool{}
	for _, p := range all {
		anchors[p.Path] = p.Anchors()
	}
	for _, p := range all {
		for _, l := range p.Links() {
			if strings.Contains(l.Target, "://") || strings.HasPrefix(l.Target, "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(l.Target, "#")
			to := p.Path
			if file != "" {
				to = path.Join(path.Dir(p.Path), file)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s:%d: the link %s leads nowhere", p.Path, l.Line, l.Target)
				continue
			}
			if anchor != "" && anchors[to] != nil && !generated[to] && !anchors[to][anchor] {
				t.Errorf("%s:%d: %s has no heading for #%s", p.Path, l.Line, to, anchor)
			}
		}
	}
}

// TestEveryPageIsReachable checks that links lead from docs/README.md to every page of docs.
func TestEveryPageIsReachable(t *testing.T) {
	all := map[string]*Page{}
	for _, p := range pages(t) {
		all[p.Path] = p
	}
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		p := all[name]
		if p == nil || seen[name] {
			return
		}
		seen[name] = true
		for _, l := range p.Links() {
			file, _, _ := strings.Cut(l.Target, "#")
			if file != "" && !strings.Contains(file, "://") {
				visit(path.Join(path.Dir(name), file))
			}
		}
	}
	visit("docs/README.md")
	for name := range all {
		if strings.HasPrefix(name, "docs/") && !seen[name] {
			t.Errorf("no way of links leads from docs/README.md to %s", name)
		}
	}
}

const longest = 100 // columns of a line of prose

var target = regexp.MustCompile(`\]\([^)]*\)|\]: \S+`)

// TestLinesAreShort limits prose to 100 columns. Tables, blocks and the targets of links do not
// count.
func TestLinesAreShort(t *testing.T) {
	for _, p := range pages(t) {
		if long := longLines(p); len(long) > 0 {
			t.Errorf("%s: lines of more than %d columns: %v", p.Path, longest, long)
		}
	}
}

func longLines(p *Page) (lines []int) {
	if generated[p.Path] {
		return nil
	}
	p.Prose(func(line int, text string) {
		if !strings.HasPrefix(text, "|") && columns(target.ReplaceAllString(text, "]")) > longest {
			lines = append(lines, line)
		}
	})
	return lines
}

// columns counts Chinese characters twice, as terminals show them.
func columns(text string) int {
	n := 0
	for _, r := range text {
		n++
		if r >= 0x2E80 && r < 0x10000 && r != '…' {
			n++
		}
	}
	return n
}

const mostWords = 15 // in a cell of a table

// TestCellsAreShort limits the cells of tables to phrases. Sentences belong below the table.
func TestCellsAreShort(t *testing.T) {
	for _, p := range pages(t) {
		if long := longCells(p); len(long) > 0 {
			t.Errorf("%s: lines with a cell of more than %d words: %v", p.Path, mostWords, long)
		}
	}
}

func longCells(p *Page) (lines []int) {
	if generated[p.Path] {
		return nil
	}
	p.Prose(func(line int, text string) {
		if !strings.HasPrefix(text, "|") {
			return
		}
		for _, cell := range strings.Split(text, "|") {
			cell = inlineLink.ReplaceAllString(cell, "]")
			if len(strings.Fields(cell)) > mostWords || utf8.RuneCountInString(cell) > 160 {
				lines = append(lines, line)
				return
			}
		}
	})
	return lines
}

var (
	functionOf     = regexp.MustCompile(`\.[A-Z]\w*$`) // of internal/run.Up
	repositoryPath = regexp.MustCompile("`((?:internal|cmd|test|hack|examples|docs|runtime|knarrtest)(?:/[\\w.*{},-]+)+/?)`")
	elsewhere      = regexp.MustCompile(`^ of (k8s\.io|upstream)`)
	announced      = regexp.MustCompile(`\ba new package `)
)

// TestNamedPathsExist checks paths of the repository in back quotes. "a new package `…`" announces
// a path, and "`…` of k8s.io/kubernetes" is a path of upstream.
func TestNamedPathsExist(t *testing.T) {
	for _, p := range pages(t) {
		p.Prose(func(line int, text string) {
			for _, at := range repositoryPath.FindAllStringSubmatchIndex(text, -1) {
				name := text[at[2]:at[3]]
				if announced.MatchString(text[:at[0]]) || elsewhere.MatchString(text[at[1]:]) {
					continue
				}
				if !exists(name) {
					t.Errorf("%s:%d: %s does not exist", p.Path, line, name)
				}
			}
		})
	}
}

// exists reports whether a path exists. It may contain a pattern or {alternatives}, and a
// function's name after the package.
func exists(name string) bool {
	name = strings.TrimSuffix(name, "/")
	if open := strings.Index(name, "{"); open >= 0 {
		end := strings.Index(name, "}")
		if end < open {
			return false
		}
		for _, part := range strings.Split(name[open+1:end], ",") {
			if !exists(name[:open] + part + name[end+1:]) {
				return false
			}
		}
		return true
	}
	name = functionOf.ReplaceAllString(strings.TrimSuffix(name, "/..."), "")
	found, err := filepath.Glob(filepath.Join(root, name))
	return err == nil && len(found) > 0
}
