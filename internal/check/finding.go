package check

import (
	"cmp"
	"slices"
	"strings"
)

// Severity is how bad a finding is.
type Severity string

const (
	// Error marks an object that the API server refuses, or that cannot work.
	Error Severity = "error"
	// Warning marks a warning of the API server, or a probable error.
	Warning Severity = "warning"
)

// Finding is one error or warning.
type Finding struct {
	File     string   `json:"file"`
	Line     int      `json:"line"`   // from 1
	Column   int      `json:"column"` // from 1, in characters
	Severity Severity `json:"severity"`
	// Object is the kind and name, such as "Deployment shop/web"; "" for a broken document.
	Object string `json:"object,omitempty"`
	// Path is the field's path, such as "spec.replicas"; "" for the whole object.
	Path string `json:"path,omitempty"`
	// Message has the found value and the allowed ones.
	Message string `json:"message"`
	// Nearest are the names that were probably meant, the likeliest first.
	Nearest []string `json:"nearest,omitempty"`

	width int // characters to mark
	fix   *replacement
	of    *object // nil for a broken document
}

// Text returns the message with the suggestion.
func (f *Finding) Text() string {
	text := f.Message
	if f.Path != "" {
		text = f.Path + ": " + text
	}
	if len(f.Nearest) == 0 {
		return text
	}
	quoted := make([]string, len(f.Nearest))
	for i, name := range f.Nearest {
		quoted[i] = `"` + name + `"`
	}
	return text + "; did you mean " + strings.Join(quoted, " or ") + "?"
}

// Report is the result of a check.
type Report struct {
	Findings []Finding `json:"findings"`
	Files    int       `json:"files"`
	Objects  int       `json:"objects"`

	contents map[string][]byte
}

// Count returns the number of findings of a severity.
func (r *Report) Count(s Severity) (n int) {
	for i := range r.Findings {
		if r.Findings[i].Severity == s {
			n++
		}
	}
	return n
}

// sort orders findings by place and drops repetitions.
func (r *Report) sort(order map[string]int) {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	r.Findings = slices.CompactFunc(r.Findings, func(a, b Finding) bool {
		return a.File == b.File && a.Line == b.Line && a.Severity == b.Severity && a.Path == b.Path && a.Message == b.Message
	})
}
