// Package docs reads the pages of the documentation and checks them. The checks are the tests of
// this package; test/e2e runs the commands of the pages against real clusters.
//
// # Words
//
//   - Page: a Markdown file, with its blocks.
//   - Block: the text between two fences (```), with the language that the first fence names.
//   - Directive: a comment `<!-- walk: WORDS -->` on the line before a block. It says how to treat
//     the block.
//   - Step: one command of a console block and the output that the page shows for it.
//
// # Console blocks
//
// A block of the language "console" holds commands and their output. A command begins with `$ `, or
// with `NAME$ ` on pages with several machines. It continues on the lines that begin with `> `.
// In a list, the block is indented.
//
// A comment that begins with a line `<!-- run WORDS` and ends with a line `-->` is a console block
// that readers do not see: what the page tells them to do by hand. The words are those of a
// directive.
//
// # Files
//
// The first line of any other block can name a file, as in `# hello.yaml` or `// hello/main.go`. A
// walk writes such a block into the file before it runs the commands below.
package docs

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
)

// Page is a Markdown file.
type Page struct {
	Path   string // below the root of the repository, with slashes
	Lines  []string
	Blocks []Block
}

// Block is a fenced part of a page.
type Block struct {
	Line      int    // of its first fence, from 1
	Language  string // as the fence names it
	Directive string // of the comment on the line before
	Indent    string // of the first fence, as in a list; the lines are without it
	Lines     []string
}

// Step is a command with its output.
type Step struct {
	Line    int      // of the command, from 1
	Last    int      // of the last line of its output, or of the command
	Machine string   // that the prompt names
	Command string   // with line breaks
	Output  []string // that the page shows
	Prompt  string   // with the command's lines, as the page writes them
	Indent  string   // of the block
}

var directive = regexp.MustCompile(`^<!-- walk: (.*) -->$`)

// ReadPage reads the file at root/name.
func ReadPage(root, name string) (*Page, error) {
	data, err := os.ReadFile(path.Join(root, name))
	if err != nil {
		return nil, err
	}
	p := &Page{Path: name, Lines: strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")}
	var open *Block
	for i, line := range p.Lines {
		text, fence := strings.CutPrefix(strings.TrimLeft(line, " "), "```")
		hidden := open != nil && open.Has("hidden")
		switch {
		case open == nil && (line == "<!-- run" || strings.HasPrefix(line, "<!-- run ")):
			open = &Block{Line: i + 1, Language: "console", Directive: "hidden keep" + line[len("<!-- run"):]}
		case line == "-->" && hidden:
			p.Blocks = append(p.Blocks, *open)
			open = nil
		case fence && open == nil:
			open = &Block{Line: i + 1, Language: text, Indent: line[:len(line)-len(text)-len("```")]}
			if i > 0 {
				if found := directive.FindStringSubmatch(strings.TrimLeft(p.Lines[i-1], " ")); found != nil {
					open.Directive = found[1]
				}
			}
		case fence:
			p.Blocks = append(p.Blocks, *open)
			open = nil
		case open != nil:
			open.Lines = append(open.Lines, strings.TrimPrefix(line, open.Indent))
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: the block has no end", name, open.Line)
	}
	return p, nil
}

// Prose calls fn for each line of the page outside of blocks.
func (p *Page) Prose(fn func(line int, text string)) {
	next := 0 // block
	for line := 1; line <= len(p.Lines); line++ {
		if next < len(p.Blocks) && line == p.Blocks[next].Line {
			line += len(p.Blocks[next].Lines) + 1
			next++
			continue
		}
		fn(line, p.Lines[line-1])
	}
}

var prompt = regexp.MustCompile(`^([a-z][a-z0-9-]*)?\$ (.*)$`)

// Steps are the commands of a console block.
func (b *Block) Steps() []Step {
	if b.Language != "console" {
		return nil
	}
	var steps []Step
	for i, text := range b.Lines {
		line := b.Line + 1 + i
		found := prompt.FindStringSubmatch(text)
		if found != nil {
			steps = append(steps, Step{Line: line, Last: line, Machine: found[1], Command: found[2], Prompt: text, Indent: b.Indent})
			continue
		}
		if len(steps) == 0 {
			continue
		}
		s := &steps[len(steps)-1]
		s.Last = line
		if more, ok := strings.CutPrefix(text, "> "); ok && len(s.Output) == 0 {
			s.Command += "\n" + more
			s.Prompt += "\n" + text
			continue
		}
		s.Output = append(s.Output, text)
	}
	return steps
}

var fileName = regexp.MustCompile(`^(?:#|//) ([\w./-]+\.\w+|[\w./-]*Containerfile)(?::.*)?$`)

// File is the name and the content of the file that the block shows; false if it shows none.
func (b *Block) File() (name, content string, ok bool) {
	if b.Language == "console" || b.Language == "" || len(b.Lines) == 0 {
		return "", "", false
	}
	found := fileName.FindStringSubmatch(b.Lines[0])
	if found == nil {
		return "", "", false
	}
	return found[1], strings.Join(b.Lines, "\n") + "\n", true
}

// Has says whether the block's directive has the word.
func (b *Block) Has(word string) bool {
	for _, w := range strings.Fields(b.Directive) {
		if w == word {
			return true
		}
	}
	return false
}
