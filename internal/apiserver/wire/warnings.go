package wire

import (
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// As upstream: if the warnings have more than allWarnings runes together, each is cut to
// oneWarning, and only as many are sent as fit.
const (
	allWarnings = 4096
	oneWarning  = 256
)

// Warnings are the warnings of one response. Webhooks may add many.
type Warnings struct {
	Known map[string]bool
	texts []string
	runes int
	cut   bool
}

// Add returns false if there is nothing new to send.
func (w *Warnings) Add(text string) bool {
	if w.Known[text] || w.cut && w.runes >= allWarnings {
		return false
	}
	if _, err := utilnet.NewWarningHeader(299, "-", text); err != nil {
		return false // not printable as a header
	}
	if w.Known == nil {
		w.Known = map[string]bool{}
	}
	w.Known[text] = true
	w.texts = append(w.texts, text)
	w.runes += utf8.RuneCountInString(text)
	if w.runes > allWarnings || w.cut {
		w.shorten()
	}
	return true
}

func (w *Warnings) shorten() {
	w.cut, w.runes = true, 0
	for i, text := range w.texts {
		if w.runes >= allWarnings {
			w.texts = w.texts[:i]
			return
		}
		if runes := []rune(text); len(runes) > oneWarning {
			w.texts[i] = string(runes[:oneWarning])
		}
		w.runes += min(utf8.RuneCountInString(text), oneWarning)
	}
}

// Headers returns the Warning headers.
func (w *Warnings) Headers() []string {
	var out []string
	for _, text := range w.texts {
		if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			out = append(out, header)
		}
	}
	return out
}
