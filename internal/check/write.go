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
	// SARIF is the format of static analysis that code hosts read, version 2.1.0.
	SARIF Format = "sarif"
)

// Formats are all formats.
var Formats = []string{string(Text), string(JSON), string(GitHub), string(SARIF)}

// Write writes the findings. excerpts adds the line of the file to each one, in the text format.
func (r *Report) Write(out io.Writer, format Format, excerpts bool) error {
	var buf bytes.Buffer
	switch format {
	case SARIF:
		data, err := r.sarif()
		if err != nil {
			return err
		}
		buf.Write(data)
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
			buf.WriteString(f.line() + "\n")
			if excerpts {
				buf.WriteString(r.excerpt(f))
			}
		}
	}
	_, err := out.Write(buf.Bytes())
	return err
}

// line is the finding as compilers write it. Without a place in a file, the object is named.
func (f *Finding) line() string {
	if f.Line == 0 {
		return oneLine(fmt.Sprintf("%s: %s: %s: %s", f.File, f.Severity, f.Object, f.Text()))
	}
	return oneLine(fmt.Sprintf("%s:%d:%d: %s: %s", f.File, f.Line, f.Column, f.Severity, f.Text()))
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
	if f.Line == 0 || f.secret() {
		return ""
	}
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

// secret reports whether the line of the finding may show the content of a Secret.
func (f *Finding) secret() bool { return f.of != nil && f.of.secretAt(f.Path) }

// secretAt reports whether a field can have the content of a Secret.
func (o *object) secretAt(path string) bool {
	return o.head.Kind == "Secret" && !strings.HasPrefix(path, "metadata") && path != "apiVersion" && path != "kind" && path != "type"
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
