package openapi

import (
	"net/http/httptest"
	"testing"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// library is a provider that counts how often each document is made. If waits is set, Document
// blocks on it.
type library struct {
	revision uint64
	hashes   map[string]Hash
	made     map[string]int
	waits    chan struct{}
}

func (l *library) Revision() uint64           { return l.revision }
func (l *library) Hashes() map[string]Hash    { return l.hashes }
func (l *library) Extend(*spec.Swagger) error { return nil }
func (l *library) Document(path string) (*spec3.OpenAPI, error) {
	l.made[path]++
	if l.waits != nil {
		l.waits <- struct{}{}
		<-l.waits
	}
	return &spec3.OpenAPI{Version: "3.0.0"}, nil
}

func TestADocumentIsKeptWhileItsWholeHashStays(t *testing.T) {
	l := &library{hashes: map[string]Hash{"apis/ours/v1": {"A", true}, "apis/theirs/v1": {"B", false}}, made: map[string]int{}}
	h := New(l, nil)
	read := func() {
		for path := range l.hashes {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/openapi/v3/"+path, nil))
		}
	}
	read()
	read()
	if l.made["apis/ours/v1"] != 1 || l.made["apis/theirs/v1"] != 1 {
		t.Fatalf("read twice: made %v", l.made)
	}
	l.revision++ // an unrelated change
	read()
	if l.made["apis/ours/v1"] != 1 || l.made["apis/theirs/v1"] != 2 {
		t.Errorf("after a change of something else: made %v, want ours once and theirs again", l.made)
	}
	l.revision++
	l.hashes = map[string]Hash{"apis/ours/v1": {"A2", true}}
	read()
	if l.made["apis/ours/v1"] != 2 || len(h.pages) != 1 {
		t.Errorf("after a change of its own: made %v, %d pages kept", l.made, len(h.pages))
	}
}

func TestNoDocumentIsMadeForAnUnacceptableMediaType(t *testing.T) {
	l := &library{hashes: map[string]Hash{"apis/theirs/v1": {"B", false}}, made: map[string]int{}}
	h := New(l, nil)
	for path, want := range map[string]int{"/openapi/v3/apis/theirs/v1": 406, "/openapi/v3/apis/batch/v1": 406, "/openapi/v2": 406, "/openapi/v3/apis/nowhere/v1": 404} {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Accept", "application/yaml")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
	if len(l.made) > 0 || len(h.pages) > 0 {
		t.Errorf("made %v, %d pages kept", l.made, len(h.pages))
	}
}

func TestTheIndexDoesNotWaitForADocument(t *testing.T) {
	l := &library{hashes: map[string]Hash{"apis/theirs/v1": {"B", false}}, made: map[string]int{}, waits: make(chan struct{})}
	h := New(l, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/openapi/v3/apis/theirs/v1", nil))
	}()
	<-l.waits // the document is being made
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/openapi/v3", nil))
	l.waits <- struct{}{}
	<-done
}
