package trace

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/insight/ask"
	"github.com/knarr-project/knarr/internal/insight/causes"
)

// logServer answers as an API server whose log has the records.
func logServer(t *testing.T, records ...causes.Record) string {
	log, err := causes.Open(causes.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	for i := range records {
		log.Append(&records[i])
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var roots []int64
		for part := range strings.SplitSeq(r.URL.Query().Get("revision"), ",") {
			n, _ := strconv.ParseInt(part, 10, 64)
			roots = append(roots, n)
		}
		closure := map[string]func(context.Context, []int64, int) ([]causes.Record, error){
			"trace": log.Forward, "causes": log.Backward,
			"records": func(ctx context.Context, revisions []int64, _ int) ([]causes.Record, error) {
				return log.Of(ctx, revisions)
			},
		}[strings.TrimPrefix(r.URL.Path, ask.Path)]
		found, err := closure(r.Context(), roots, 0)
		if err == nil {
			err = json.NewEncoder(w).Encode(causes.Answer{Records: found})
		}
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func serversAt(urls ...string) *Servers {
	s := &Servers{}
	for _, url := range urls {
		s.All = append(s.All, Server{Name: url, Ask: Remote(&ask.Server{HTTP: http.DefaultClient, URL: url})})
	}
	return s
}

// The writes of one story are spread over three servers, of which one does not answer.
func TestLogsOfSeveralServersAreMerged(t *testing.T) {
	all := rollout().Records
	var odd, even []causes.Record
	for i, r := range all {
		if r.Inferred {
			continue
		}
		if i%2 == 0 {
			even = append(even, r)
		} else {
			odd = append(odd, r)
		}
	}
	dead := httptest.NewServer(nil)
	dead.Close()
	s := serversAt(logServer(t, odd...), dead.URL, logServer(t, even...))
	revisions := func(a causes.Answer, err error) (out []int64) {
		if err != nil {
			t.Error(err)
		}
		for _, r := range a.Records {
			out = append(out, r.Revision)
		}
		return out
	}
	want := []int64{10, 12, 13, 14, 15, 18, 20}
	if got := revisions(s.Forward(t.Context(), []int64{10})); !slices.Equal(got, want) {
		t.Errorf("forward: %v", got)
	}
	if got := revisions(s.Backward(t.Context(), []int64{20})); !slices.Equal(got, want) {
		t.Errorf("backward: %v", got)
	}
	if got := revisions(s.Of(t.Context(), []int64{10, 11, 13, 20})); !slices.Equal(got, []int64{10, 13, 20}) && !slices.Equal(got, []int64{10, 11, 13, 20}) {
		t.Errorf("records: %v", got)
	}
	if missing := s.Missing(); len(missing) != 1 || missing[dead.URL] == "" {
		t.Errorf("missing: %v", missing)
	}
	s = serversAt(dead.URL)
	if _, err := s.Forward(t.Context(), []int64{10}); err == nil {
		t.Error("no server answers, and there is no error")
	}
}

func TestErrorsOfServersAreShown(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","message":"you may not"}`))
	}))
	defer server.Close()
	s := serversAt(server.URL)
	if _, err := s.OfRequest(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "you may not") {
		t.Error(err)
	}
}
