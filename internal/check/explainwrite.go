package check

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// textWidth is the width of explanations, in columns.
const textWidth = 100

// Write writes the explanation as text.
func (e *Explanation) Write(to io.Writer) error {
	out := &strings.Builder{}
	name := e.Kind
	if e.Path != "" {
		name += "." + e.Path
	}
	fmt.Fprintf(out, "%s (%s): %s", name, e.APIVersion, e.Type)
	if e.Required {
		out.WriteString(", required")
	}
	out.WriteString("\n")
	if e.Description != "" {
		out.WriteString("\n" + wrapped(e.Description, "  "))
	}
	e.writeValues(out)
	if len(e.Fields) > 0 {
		out.WriteString("\nFields (* is required)\n")
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, f := range e.Fields {
			mark := ""
			if f.Required {
				mark = "*"
			}
			fmt.Fprintf(table, "  %s%s\t%s\t%s\n", f.Name, mark, f.Type, shortened(f.Description))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		out = trimmed(out.String())
	}
	if e.Example != "" {
		fmt.Fprintf(out, "\nExample (%s)\n", e.ExampleOf)
		for line := range strings.Lines(e.Example) {
			out.WriteString("  " + line)
		}
	}
	_, err := io.WriteString(to, out.String())
	return err
}

func (e *Explanation) writeValues(out *strings.Builder) {
	if len(e.Allowed) > 0 {
		out.WriteString("\nAllowed\n")
		for _, v := range e.Allowed {
			text := "  " + v.Value
			if v.Description != "" {
				text += ": " + v.Description
			}
			lines := wrapped(strings.TrimSpace(text), "    ")
			out.WriteString("  " + strings.TrimLeft(lines, " "))
		}
	}
	if len(e.Limits) > 0 {
		out.WriteString("\nLimits: " + strings.Join(e.Limits, ", ") + "\n")
	}
	if e.Default != nil {
		if text, err := json.Marshal(e.Default); err == nil {
			fmt.Fprintf(out, "\nDefault: %s\n", text)
		}
	}
}

// trimmed drops the spaces at the ends of lines.
func trimmed(text string) *strings.Builder {
	out := &strings.Builder{}
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return out
}

// shortened cuts a description to the rest of a line.
func shortened(text string) string {
	const longest = 60
	if utf8.RuneCountInString(text) <= longest {
		return text
	}
	cut := string([]rune(text)[:longest])
	if i := strings.LastIndexByte(cut, ' '); i > 0 {
		cut = cut[:i]
	}
	return cut + " …"
}

// wrapped breaks a text into lines with an indentation. Its own lines stay apart.
func wrapped(text, indent string) string {
	var out strings.Builder
	for paragraph := range strings.SplitSeq(text, "\n") {
		column := 0
		for _, word := range strings.Fields(paragraph) {
			width := utf8.RuneCountInString(word)
			switch {
			case column == 0:
				out.WriteString(indent)
				column = len(indent)
			case column+1+width > textWidth:
				out.WriteString("\n" + indent)
				column = len(indent)
			default:
				out.WriteByte(' ')
				column++
			}
			out.WriteString(word)
			column += width
		}
		out.WriteByte('\n')
	}
	return out.String()
}
