package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// generated pages come from the program; their form is tested where they are made.
var generated = map[string]bool{"docs/reference/cli.md": true, "docs/reference/settings.md": true,
	"docs/reference/why-causes.md":   true,
	"docs/insight/why-situations.md": true}

// AllPages are the pages that users read: those at the root of the repository and all of docs.
func AllPages(root string) ([]*Page, error) {
	names, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".md") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var pages []*Page
	for _, name := range names {
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return nil, err
		}
		p, err := ReadPage(root, filepath.ToSlash(relative))
		if err != nil {
			return nil, err
		}
		pages = append(pages, p)
	}
	return pages, nil
}

// Link is a link or an image of a page.
type Link struct {
	Line   int
	Target string
}

var (
	inlineLink = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)`)
	sourceLink = regexp.MustCompile(`(?:src|srcset|href)="([^"]+)"`)
	codeSpan   = regexp.MustCompile("`[^`]*`")
)

// Links returns the links in the page's prose.
func (p *Page) Links() []Link {
	var links []Link
	p.Prose(func(line int, text string) {
		text = codeSpan.ReplaceAllString(text, "")
		for _, find := range []*regexp.Regexp{inlineLink, sourceLink} {
			for _, found := range find.FindAllStringSubmatch(text, -1) {
				links = append(links, Link{line, found[1]})
			}
		}
	})
	return links
}

var (
	heading = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
	anchorA = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	markup  = regexp.MustCompile("[`*]|\\]\\([^)]*\\)|\\[")
	dropped = regexp.MustCompile(`[^\p{L}\p{N}\p{M} _-]`)
)

// Anchors returns the anchors of the page's headings, as GitHub makes them.
func (p *Page) Anchors() map[string]bool {
	anchors := map[string]bool{}
	p.Prose(func(_ int, text string) {
		for _, found := range anchorA.FindAllStringSubmatch(text, -1) {
			anchors[found[1]] = true
		}
		found := heading.FindStringSubmatch(text)
		if found == nil {
			return
		}
		name := markup.ReplaceAllString(strings.ToLower(found[1]), "")
		name = strings.ReplaceAll(dropped.ReplaceAllString(name, ""), " ", "-")
		for n, base := 1, name; anchors[name]; n++ {
			name = base + "-" + string(rune('0'+n))
		}
		anchors[name] = true
	})
	return anchors
}

// Commands returns the shell commands of the page's blocks, one for each line that begins with the
// program or follows a shell operator. It skips blocks with files.
func (p *Page) Commands(program string) []Link {
	var found []Link
	for _, b := range p.Blocks {
		if _, _, file := b.File(); file {
			continue
		}
		if b.Language == "console" {
			for _, s := range b.Steps() {
				found = append(found, commandsOf(s.Line, s.Command, program)...)
			}
			continue
		}
		switch b.Language {
		case "", "sh", "bash", "shell", "yaml":
			for i, text := range b.Lines {
				found = append(found, commandsOf(b.Line+1+i, strings.TrimPrefix(strings.TrimSpace(text), "run: "), program)...)
			}
		}
	}
	p.Prose(func(line int, text string) {
		for _, span := range codeSpan.FindAllString(text, -1) {
			found = append(found, commandsOf(line, strings.Trim(span, "`"), program)...)
		}
	})
	return found
}

// commandsOf returns the calls of a program in a line of shell.
func commandsOf(line int, text, program string) []Link {
	var found []Link
	text = strings.ReplaceAll(text, "\\\n", " ")
	text, _, _ = strings.Cut(text, "\n") // the rest is a here document
	for _, part := range splitShell(text) {
		part = strings.TrimSpace(part)
		for _, before := range []string{"sudo ", "bin/", "./bin/", "nsenter --net --target PID "} {
			part = strings.TrimPrefix(part, before)
		}
		if part == program || strings.HasPrefix(part, program+" ") {
			found = append(found, Link{line, part})
		}
	}
	return found
}

// splitShell cuts a line at |, &&, ||, ;, & and around $( ) outside of quotes, and drops comments.
func splitShell(text string) []string {
	var parts []string
	var now strings.Builder
	var quote rune
	cut := func() { parts = append(parts, now.String()); now.Reset() }
	var previous rune = ' '
	for _, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
			if quote == '"' && r == '(' && previous == '$' {
				cut()
				break
			}
			now.WriteRune(r)
		case r == '\'' || r == '"':
			quote = r
			now.WriteRune(r)
		case r == '#' && previous == ' ':
			cut()
			return parts
		case strings.ContainsRune("|;&()", r):
			cut()
		default:
			now.WriteRune(r)
		}
		previous = r
	}
	cut()
	return parts
}

// Words splits a simple command into its words, without quotes and redirections.
func Words(command string) []string {
	var words []string
	var now strings.Builder
	var quote rune
	started := false
	end := func() {
		if started {
			words = append(words, now.String())
		}
		now.Reset()
		started = false
	}
	for _, r := range command {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			now.WriteRune(r)
		case r == '\'' || r == '"':
			quote, started = r, true
		case r == ' ' || r == '\t':
			end()
		default:
			started = true
			now.WriteRune(r)
		}
	}
	end()
	for i, w := range words {
		if strings.ContainsAny(w[:min(len(w), 2)], "<>") && w != "<" || w == "<" {
			return words[:i]
		}
	}
	return words
}
