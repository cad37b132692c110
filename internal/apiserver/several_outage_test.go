package apiserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/knarr-project/knarr/internal/store"
)

// brokenStore fails reads and commits while it is set.
type brokenStore struct {
	store.Store
	reads, commits *atomic.Pointer[error]
	// after makes a commit before it fails.
	after bool
	// then fails the reads after a failed commit.
	then error
}

func failure(of *atomic.Pointer[error]) error {
	if err := of.Load(); err != nil {
		return *err
	}
	return nil
}

func (s brokenStore) Revision(ctx context.Context) (int64, error) {
	if err := failure(s.reads); err == context.DeadlineExceeded {
		<-ctx.Done() // as a store that has no leader
		return 0, ctx.Err()
	} else if err != nil {
		return 0, err
	}
	return s.Store.Revision(ctx)
}

func (s brokenStore) Get(ctx context.Context, key string, revision int64) (*store.KeyValue, int64, error) {
	if err := failure(s.reads); err != nil {
		return nil, 0, err
	}
	return s.Store.Get(ctx, key, revision)
}

func (s brokenStore) Commit(ctx context.Context, conditions []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	err := failure(s.commits)
	if err == nil || s.after {
		if res, err := s.Store.Commit(ctx, conditions, ops...); err != nil || failure(s.commits) == nil {
			return res, err
		}
	}
	if s.then != nil {
		s.reads.Store(&s.then)
	}
	return store.TxnResult{}, err
}

func newBrokenServer(t *testing.T, after bool, then ...error) (s *Server, reads, commits *atomic.Pointer[error]) {
	reads, commits = &atomic.Pointer[error]{}, &atomic.Pointer[error]{}
	s = newTestServer(t, func(c *Config) {
		c.Store, c.Alone = brokenStore{c.Store, reads, commits, after, errors.Join(then...)}, func() bool { return false }
	})
	return s, reads, commits
}

// Clients repeat a request by themselves if the answer has a Retry-After: only one that has changed
// nothing may have it.
func TestOnlyRequestsThatChangedNothingAreRepeated(t *testing.T) {
	const maps = "/api/v1/namespaces/default/configmaps"
	for name, tc := range map[string]struct {
		reads, commits error
		after          bool
		method         string
		code           int
		repeat, stored bool
	}{
		"read":                    {reads: store.ErrUnavailable, method: "GET", code: http.StatusServiceUnavailable, repeat: true},
		"write, before it begins": {reads: store.ErrUnavailable, method: "POST", code: http.StatusServiceUnavailable, repeat: true},
		"write that was refused":  {commits: store.ErrNotBegun, method: "POST", code: http.StatusServiceUnavailable, repeat: true},
		"write that was not made": {commits: store.ErrUnavailable, method: "POST", code: http.StatusGatewayTimeout},
		"write that was made":     {commits: store.ErrUnavailable, after: true, method: "POST", code: http.StatusGatewayTimeout, stored: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, reads, commits := newBrokenServer(t, tc.after)
			mustDo(t, s, 201, "POST", maps, `{"metadata":{"name":"before"}}`)
			mustDo(t, s, 200, "GET", maps, "")
			if tc.reads != nil {
				reads.Store(&tc.reads)
			}
			if tc.commits != nil {
				commits.Store(&tc.commits)
			}
			body := ""
			if tc.method == "POST" {
				body = `{"metadata":{"name":"one"}}`
			}
			code, header, out := do(t, s, tc.method, maps, body)
			if code != tc.code || (header.Get("Retry-After") != "") != tc.repeat {
				t.Errorf("%d, Retry-After %q: %s", code, header.Get("Retry-After"), out)
			}
			if code == http.StatusGatewayTimeout && (!strings.Contains(out, `"reason":"Timeout"`) || !strings.Contains(out, "may have been made or not")) {
				t.Errorf("the answer does not say that the outcome is unknown: %s", out)
			}
			reads.Store(nil)
			commits.Store(nil)
			if stored := strings.Contains(mustDo(t, s, 200, "GET", maps, ""), `"one"`); stored != tc.stored {
				t.Errorf("stored: %v, want %v", stored, tc.stored)
			}
		})
	}
}

// A write that the store did not confirm is neither repeated nor called refused, whatever the store
// answers afterwards. The object is in the server's cache, so the write begins without a read.
func TestAWriteOfAKnownObjectMayHaveBeenMade(t *testing.T) {
	const object = "/api/v1/namespaces/default/configmaps/one"
	for name, later := range map[string]error{"the store answers again": nil, "the store stays silent": store.ErrNotBegun} {
		for method, body := range map[string]string{"DELETE": "", "PATCH": `{"data":{"a":"b"}}`, "PUT": `{"metadata":{"name":"one"},"data":{"a":"b"}}`} {
			t.Run(name+"/"+method, func(t *testing.T) {
				s, _, commits := newBrokenServer(t, true, later)
				mustDo(t, s, 201, "POST", path.Dir(object), `{"metadata":{"name":"one"}}`)
				mustDo(t, s, 200, "GET", object, "")
				commits.Store(&store.ErrUnavailable)
				code, header, out := do(t, s, method, object, body, "Content-Type", contentTypes[method])
				if code != http.StatusGatewayTimeout || header.Get("Retry-After") != "" || !strings.Contains(out, "may have been made or not") {
					t.Errorf("%d, Retry-After %q: %s", code, header.Get("Retry-After"), out)
				}
			})
		}
	}
}

var contentTypes = map[string]string{"PATCH": "application/merge-patch+json", "PUT": "application/json", "DELETE": "application/json"}

func TestServerWithoutAQuorumIsAliveAndNotReady(t *testing.T) {
	s, reads, _ := newBrokenServer(t, false)
	s.startBackground()
	eventually(t, func() error { return s.Started(t.Context()) })
	eventually(t, func() error { return ready(t, s) })
	for _, why := range []error{store.ErrUnavailable, context.DeadlineExceeded} {
		reads.Store(&why)
		if code, _, body := do(t, s, "GET", "/readyz", ""); code != 500 || !strings.Contains(body, "[-]etcd failed") {
			t.Errorf("readyz with %v: %d %s", why, code, body)
		}
		want := why.Error()
		if why == context.DeadlineExceeded {
			want = "it may have no leader"
		}
		if code, _, body := do(t, s, "GET", "/readyz/etcd-readiness", ""); code != 500 || !strings.Contains(body, want) {
			t.Errorf("its reason: %d %s", code, body)
		}
		if code, _, body := do(t, s, "GET", "/livez", ""); code != 200 {
			t.Errorf("livez with %v: %d %s", why, code, body)
		}
		reads.Store(nil)
		if err := ready(t, s); err != nil {
			t.Error(err)
		}
	}
}

// A watch at a server that is cut off would show nothing new, for as long as it lasts.
func TestWatchesEndAtAServerWithoutAQuorum(t *testing.T) {
	s, reads, _ := newBrokenServer(t, false)
	const watch = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion="
	mustDo(t, s, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"one"}}`)
	url, _, _ := running(t, s)
	rv := resourceVersionOf(t, mustDo(t, s, 200, "GET", "/api/v1/namespaces/default/configmaps", ""))
	open, err := http.Get(url + watch + rv)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Body.Close()
	reads.Store(&store.ErrUnavailable)
	if failures := s.judgeQuorum(t.Context(), 0); failures != 1 || s.lost.Load() {
		t.Errorf("%d failures, lost: %v", failures, s.lost.Load())
	}
	s.judgeQuorum(t.Context(), 1)
	if body, err := io.ReadAll(open.Body); err != nil || len(body) > 0 {
		t.Errorf("the watch ends with %q, %v", body, err)
	}
	if code, header, body := do(t, s, "GET", watch+rv, ""); code != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("a new watch: %d %s", code, body)
	}
	reads.Store(nil)
	if failures := s.judgeQuorum(t.Context(), 2); failures != 0 {
		t.Errorf("%d failures", failures)
	}
	again, err := http.Get(url + watch + rv)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Body.Close()
	mustDo(t, s, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"two"}}`)
	if line, err := bufio.NewReader(again.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"two"`) {
		t.Errorf("the watch shows %q, %v", line, err)
	}
}
