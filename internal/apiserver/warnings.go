package apiserver

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

// warnings are the warnings of one response. Webhooks may add many.
type warnings struct {
	known map[string]bool
	texts []string
	runes int
	cut   bool
}

// add returns false if there is nothing new to send.
func (w *warnings) add(text string) bool {
	if w.known[text] || w.cut && w.runes >= allWarnings {
		return false
	}
	if _, err := utilnet.NewWarningHeader(299, "-", text); err != nil {
		return false // not printable as a header
	}
	if w.known == nil {
		w.known = map[string]bool{}
	}
	w.known[text] = true
	w.texts = append(w.texts, text)
	w.runes += utf8.RuneCountInString(text)
	if w.runes > allWarnings || w.cut {
		w.shorten()
	}
	return true
}

func (w *warnings) shorten() {
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

func (w *warnings) headers() []string {
	var out []string
	for _, text := range w.texts {
		if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			out = append(out, header)
		}
	}
	return out
}
