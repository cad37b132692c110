package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// fakeMembers is a list of members. Some of them answer.
type fakeMembers struct {
	all    []etcd.Member
	dead   map[uint64]bool
	steps  []string
	quorum bool // refuse removals
	lost   bool // no majority answers
	led    bool // by a member that is removed: then the others cannot tell their list
	next   uint64
}

func (f *fakeMembers) Members(context.Context) ([]etcd.Member, error) {
	if f.lost || f.led && len(f.steps) > 0 {
		return nil, errors.New("list members: etcdserver: no leader")
	}
	return slices.Clone(f.all), nil
}

func (f *fakeMembers) KnownMembers() ([]etcd.Member, int64, error) {
	return slices.Clone(f.all), 1, nil
}

func (f *fakeMembers) Reachable(_ context.Context, m etcd.Member) error {
	if f.dead[m.ID] {
		return errors.New("dial: no route")
	}
	return nil
}

func (f *fakeMembers) AddLearner(_ context.Context, name, peerURL string) (etcd.Member, []etcd.Member, error) {
	f.next++
	m := etcd.Member{ID: 100 + f.next, PeerURL: peerURL, Learner: true}
	f.all, f.steps = append(f.all, m), append(f.steps, "add "+name)
	return m, slices.Clone(f.all), nil
}

func (f *fakeMembers) Promote(context.Context, uint64) error { return etcd.ErrLearnerNotReady }

func (f *fakeMembers) Remove(_ context.Context, id uint64) error {
	if f.quorum {
		return fmt.Errorf("remove: %w", etcd.ErrQuorum)
	}
	f.steps = append(f.steps, fmt.Sprintf("remove %x", id))
	f.all = slices.DeleteFunc(f.all, func(m etcd.Member) bool { return m.ID == id })
	return nil
}

func (f *fakeMembers) Alone() bool { return len(f.all) == 1 }

func (f *fakeMembers) HandOver(context.Context) error {
	f.steps = append(f.steps, "hand over")
	return nil
}

// serverOf returns a server with members a (itself, the leader), b, and c, which is dead.
func serverOf(t *testing.T) (*Server, *fakeMembers) {
	t.Helper()
	f := &fakeMembers{dead: map[uint64]bool{3: true}, all: []etcd.Member{
		{ID: 1, Name: "a", PeerURL: "https://10.0.0.1:2380", Self: true, Leader: true},
		{ID: 2, Name: "b", PeerURL: "https://10.0.0.2:2380"},
		{ID: 3, Name: "c", PeerURL: "https://10.0.0.3:2380"},
	}}
	cfg := config.Default()
	cfg.NodeName = "a"
	db := openEngine(t)
	return &Server{cfg: &cfg, keys: openKeys(t), log: slog.New(slog.DiscardHandler), members: f, raw: db, db: db, pause: time.Millisecond}, f
}

// post sends a request to a path of members.
func post(s *Server, path, body string) (status int, text string) {
	w := httptest.NewRecorder()
	s.memberPaths()[path].ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func TestMembersChangeOnlyWhereItIsSafe(t *testing.T) {
	for name, tt := range map[string]struct {
		path, body string
		change     func(*fakeMembers)
		status     int
		text       string
		steps      []string
	}{
		"a new server":                {member.AddPath, `{"name":"d","peerURL":"https://10.0.0.4:2380"}`, nil, 200, `"added":"65"`, []string{"add d"}},
		"a living member's name":      {member.AddPath, `{"name":"b","peerURL":"https://10.0.0.4:2380"}`, nil, 409, `server "b" is a member and runs`, nil},
		"a living member's address":   {member.AddPath, `{"name":"d","peerURL":"https://10.0.0.2:2380"}`, nil, 409, `that of server "b"`, nil},
		"this server's name":          {member.AddPath, `{"name":"a","peerURL":"https://10.0.0.4:2380"}`, nil, 409, `server "a" is a member and runs`, nil},
		"a dead member's name":        {member.AddPath, `{"name":"c","peerURL":"https://10.0.0.3:2380"}`, nil, 200, `"added":"65"`, []string{"remove 3", "add c"}},
		"a dead member, no quorum":    {member.AddPath, `{"name":"c","peerURL":"https://10.0.0.3:2380"}`, func(f *fakeMembers) { f.quorum = true }, 409, "stay writable", nil},
		"a learner that is added":     {member.AddPath, `{"name":"c","peerURL":"https://10.0.0.3:2380","id":"3"}`, func(f *fakeMembers) { f.all[2].Learner = true }, 200, `"added":"3"`, nil},
		"a voter is no learner":       {member.AddPath, `{"name":"c","peerURL":"https://10.0.0.3:2380","id":"3"}`, nil, 200, `"added":"65"`, []string{"remove 3", "add c"}},
		"no address":                  {member.AddPath, `{"name":"d"}`, nil, 400, "peerURL is missing", nil},
		"the leader, which is itself": {member.RemovePath, `{"name":"a"}`, nil, 200, `"name":"b"`, []string{"hand over", "remove 1"}},
		"by ID":                       {member.RemovePath, `{"name":"3"}`, nil, 200, `"name":"b"`, []string{"remove 3"}},
		"the leader":                  {member.RemovePath, `{"name":"b"}`, func(f *fakeMembers) { f.led = true }, 200, `"name":"c"`, []string{"remove 2"}},
		"without a majority":          {member.RemovePath, `{"name":"b"}`, func(f *fakeMembers) { f.quorum = true }, 409, "a majority must answer", nil},
		"the last voter":              {member.RemovePath, `{"name":"a"}`, func(f *fakeMembers) { f.all = f.all[:1] }, 409, "the last voter", nil},
		"an unknown member":           {member.RemovePath, `{"name":"x"}`, nil, 404, "the members are a, b, c", nil},
		"a learner that is behind":    {member.PromotePath, `{"name":"c"}`, func(f *fakeMembers) { f.all[2].Learner = true }, 409, "has not caught up", nil},
		"a voter":                     {member.PromotePath, `{"name":"c"}`, nil, 409, "voter already", nil},
		"no JSON":                     {member.RemovePath, `x`, nil, 400, "not usable", nil},
		"too much":                    {member.RemovePath, `{"name":"` + strings.Repeat("x", 5000) + `"}`, nil, 413, "larger than", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := serverOf(t)
			if tt.change != nil {
				tt.change(f)
			}
			status, text := post(s, tt.path, tt.body)
			if status != tt.status || !strings.Contains(text, tt.text) || !slices.Equal(f.steps, tt.steps) {
				t.Errorf("%d %s after %q", status, text, f.steps)
			}
		})
	}
}

// TestMembersAreListedWithoutAMajority lists them on a server whose two others are dead.
func TestMembersAreListedWithoutAMajority(t *testing.T) {
	s, f := serverOf(t)
	f.lost, f.dead[2] = true, true
	w := httptest.NewRecorder()
	s.memberPaths()[member.Path].ServeHTTP(w, httptest.NewRequest(http.MethodGet, member.Path, nil))
	var list member.List
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != http.StatusOK || len(list.Members) != 3 || list.Outdated != "no leader" {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	for i, want := range []string{member.Healthy, "the store does not answer: no route", "the store does not answer: no route"} {
		if got := list.Members[i].Health; got != want {
			t.Errorf("server %s: %q, want %q", list.Members[i].Name, got, want)
		}
	}
}

func TestAnOutsideStoreHasNoMembers(t *testing.T) {
	s, _ := serverOf(t)
	s.members = nil
	if status, text := post(s, member.RemovePath, `{"name":"b"}`); status != http.StatusNotImplemented || !strings.Contains(text, "etcdctl") {
		t.Errorf("%d %s", status, text)
	}
	w := httptest.NewRecorder()
	s.memberPaths()[member.RemovePath].ServeHTTP(w, httptest.NewRequest(http.MethodGet, member.RemovePath, nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
}

func TestARequestForKeysIsCheckedFirst(t *testing.T) {
	s, _ := serverOf(t)
	for body, want := range map[string]int{`{"name":"b","kubernetes":"v1.36.3"}`: 409, `{"name":"d","kubernetes":"v1.30.0"}`: 400, `{}`: 400, strings.Repeat("x", 20000): 413} {
		w := httptest.NewRecorder()
		s.serveServers(w, httptest.NewRequest(http.MethodPost, member.ServersPath, strings.NewReader(body)))
		if w.Code != want || strings.Contains(w.Body.String(), "PRIVATE KEY") {
			t.Errorf("%.40s: %d %s", body, w.Code, w.Body)
		}
	}
}
