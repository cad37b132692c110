package because

import (
	"context"
	"fmt"
)

// NoteHeader is the HTTP header with the note of a request.
const NoteHeader = "Knarr-Note"

// MaxNote bounds a note, in bytes.
const MaxNote = 256

type noteKey struct{}

// WithNote returns a context whose writes have a note: a line that says how their maker decided,
// such as the scores of nodes. It is for display only.
func WithNote(ctx context.Context, note string) context.Context {
	if note == "" {
		return ctx
	}
	return context.WithValue(ctx, noteKey{}, note)
}

// Note returns the note in a context, or "".
func Note(ctx context.Context) string {
	note, _ := ctx.Value(noteKey{}).(string)
	return note
}

// ParseNote reads the header of a note. It refuses long ones, and characters that are not printable
// ASCII.
func ParseNote(text string) (string, error) {
	if len(text) > MaxNote {
		return "", fmt.Errorf("%s has %d bytes; at most %d are allowed", NoteHeader, len(text), MaxNote)
	}
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' {
			return "", fmt.Errorf("%s has the byte %#x; printable ASCII is allowed", NoteHeader, c)
		}
	}
	return text, nil
}
