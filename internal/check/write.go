package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Format is a form of the output.
type Format string

const (
	// Text is file:line:column: severity: path: message, as compilers write it.
	Text Format = "text"
	// JSON is a Report.
	JSON Format = "json"
	// GitHub are workflow commands, which GitHub shows beside the lines of a pull request.
	GitHub Format = "github"
)

// Formats are all formats.
var Formats = []string{string(Text), string(JSON), string(GitHub)}

// Write writes the findings. excerpts adds the line of the file to each one, in the text format.
func (r *Report) Write(out io.Writer, format Format, excerpts bool) error {
	var buf bytes.Buffer
	switch format {
	case JSON:
		encoder := json.NewEncoder(&buf)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(r); err != nil {
			return err
		}
	case GitHub:
		for i := range r.Findings {
			f := &r.Findings[i]
			fmt.Fprintf(&buf, "::%s file=%s,line=%d,col=%d::%s\n", f.Severity, property(f.File), f.Line, f.Column, data(f.Text()))
		}
	default:
		for i := range r.Findings {
			f := &r.Findings[i]
			fmt.Fprintf(&buf, "%s:%d:%d: %s: %s\n", f.File, f.Line, f.Column, f.Severity, oneLine(f.Text()))
			if excerpts {
				buf.WriteString(r.excerpt(f))
			}
		}
	}
	_, err := out.Write(buf.Bytes())
	return err
}

// data and property escape values of workflow commands.
func data(text string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(text)
}

func property(text string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(data(text))
}

// oneLine replaces line breaks and control characters, which a file may contain.
func oneLine(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, text)
}

// excerpt shows the line of a finding with its place marked.
func (r *Report) excerpt(f *Finding) string {
	const longest = 160
	rest := r.contents[f.File]
	for range f.Line - 1 {
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
	}
	text, _, _ := bytes.Cut(rest, []byte("\n"))
	line := []rune(oneLine(strings.TrimRight(string(text), "\r")))
	if len(line) == 0 || f.Column > min(len(line), longest) {
		return ""
	}
	if len(line) > longest {
		line = append(line[:longest], '…')
	}
	number := fmt.Sprint(f.Line)
	mark := "^" + strings.Repeat("~", max(0, min(f.width, len(line)-f.Column+1)-1))
	return fmt.Sprintf(" %s | %s\n %s | %s%s\n", number, string(line), strings.Repeat(" ", len(number)), strings.Repeat(" ", f.Column-1), mark)
}

// Summary counts the objects, the files and the findings.
func (r *Report) Summary() string {
	checked := fmt.Sprintf("%s in %s", count(r.Objects, "object"), count(r.Files, "file"))
	errors, warnings := r.Count(Error), r.Count(Warning)
	if errors+warnings == 0 {
		return checked + ": no errors, no warnings"
	}
	return fmt.Sprintf("%s: %s, %s", checked, count(errors, "error"), count(warnings, "warning"))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
