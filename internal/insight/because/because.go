// Package because carries the causes of a write: the revisions of the objects whose change made a
// component write.
//
// A component puts Revisions into the context of its calls. In process, the API server reads them
// from the context. Over HTTPS they travel in the header Knarr-Because, which other API servers
// ignore. Causes are for display only: no decision of the API server depends on them. ADR 0086 has
// the design.
package because

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
)

// Max is the number of causes that a write keeps.
const Max = 4

// Header is the HTTP header with the causes of a request: up to Max revisions, separated by commas.
const Header = "Knarr-Because"

// maxHeader bounds the header: Max numbers of 19 digits, with commas and spaces.
const maxHeader = 96

// Revisions are up to Max different revisions of the store. The zero value has none.
type Revisions struct {
	n    int
	list [Max]int64
}

// Of returns the revisions given, as if each was added.
func Of(revisions ...int64) (r Revisions) {
	for _, revision := range revisions {
		r.Add(revision)
	}
	return r
}

// Add adds a revision. If there are Max already, it replaces the last one: the first one says what
// began the wait, the others are the most recent ones. Numbers below 1 are ignored.
func (r *Revisions) Add(revision int64) {
	if revision < 1 {
		return
	}
	for _, have := range r.list[:r.n] {
		if have == revision {
			return
		}
	}
	if r.n < Max {
		r.list[r.n] = revision
		r.n++
		return
	}
	copy(r.list[1:], r.list[2:])
	r.list[Max-1] = revision
}

// AddAll adds the revisions of another set.
func (r *Revisions) AddAll(other Revisions) {
	for _, revision := range other.list[:other.n] {
		r.Add(revision)
	}
}

// AddObject adds the resourceVersion of an object. Objects without a number there are ignored.
func (r *Revisions) AddObject(obj any) {
	if acc, err := meta.Accessor(obj); err == nil {
		if revision, err := strconv.ParseInt(acc.GetResourceVersion(), 10, 64); err == nil {
			r.Add(revision)
		}
	}
}

// Len is the number of revisions.
func (r *Revisions) Len() int { return r.n }

// All returns the revisions in the order in which they were added. The slice belongs to r.
func (r *Revisions) All() []int64 { return r.list[:r.n] }

// Has reports whether the revision is among them.
func (r *Revisions) Has(revision int64) bool {
	for _, have := range r.list[:r.n] {
		if have == revision {
			return true
		}
	}
	return false
}

// String returns the header's value.
func (r Revisions) String() string {
	var b strings.Builder
	for i, revision := range r.list[:r.n] {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(revision, 10))
	}
	return b.String()
}

// Parse reads a header's value. It refuses more than Max numbers, and numbers that are no revision.
func Parse(text string) (r Revisions, err error) {
	if text == "" {
		return r, nil
	}
	if len(text) > maxHeader {
		return Revisions{}, fmt.Errorf("%s has %d bytes; at most %d are allowed", Header, len(text), maxHeader)
	}
	parts := strings.Split(text, ",")
	if len(parts) > Max {
		return Revisions{}, fmt.Errorf("%s has %d revisions; at most %d are allowed", Header, len(parts), Max)
	}
	for _, part := range parts {
		revision, err := strconv.ParseInt(strings.TrimSpace(part), 10, 64)
		if err != nil || revision < 1 {
			return Revisions{}, fmt.Errorf("%s has %q; a revision is a number above 0", Header, part)
		}
		r.Add(revision)
	}
	return r, nil
}

// MarshalJSON encodes a list of numbers.
func (r Revisions) MarshalJSON() ([]byte, error) { return json.Marshal(r.list[:r.n]) }

// UnmarshalJSON decodes a list of at most Max numbers.
func (r *Revisions) UnmarshalJSON(data []byte) error {
	var list []int64
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	if len(list) > Max {
		return fmt.Errorf("%d causes; at most %d are allowed", len(list), Max)
	}
	*r = Of(list...)
	return nil
}

type revisionsKey struct{}

// With returns a context whose writes are made because of the revisions.
func With(ctx context.Context, r Revisions) context.Context {
	if r.n == 0 {
		return ctx
	}
	return context.WithValue(ctx, revisionsKey{}, r)
}

// WithObjects returns a context whose writes are made because of the objects' present versions,
// and then of what the context has already, if the context is one whose causes are tracked.
func WithObjects(ctx context.Context, objects ...any) context.Context {
	if !Tracked(ctx) {
		return ctx
	}
	var r Revisions
	for _, obj := range objects {
		r.AddObject(obj)
	}
	r.AddAll(From(ctx))
	return With(ctx, r)
}

// From returns the causes in a context.
func From(ctx context.Context) Revisions {
	r, _ := ctx.Value(revisionsKey{}).(Revisions)
	return r
}

type trackedKey struct{}

// Track returns a context in which components collect causes. Without it they spend nothing on
// them.
func Track(ctx context.Context) context.Context { return context.WithValue(ctx, trackedKey{}, true) }

// Tracked reports whether components collect causes.
func Tracked(ctx context.Context) bool { return ctx.Value(trackedKey{}) != nil }

// Transport adds the header to the requests whose context has causes.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if r, note := From(ctx), Note(ctx); (r.n > 0 || note != "") && req.Method != http.MethodGet {
		req = req.Clone(ctx)
		if r.n > 0 {
			req.Header.Set(Header, r.String())
		}
		if note != "" {
			req.Header.Set(NoteHeader, note)
		}
	}
	return t.next.RoundTrip(req)
}

// WrappedRoundTripper returns the transport below, for client-go.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
