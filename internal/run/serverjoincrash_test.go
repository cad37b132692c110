package run

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// writer writes through a server without trying again, until stop is called.
func (s *testServer) writer(t *testing.T) (stop func() (written int, failed []error)) {
	t.Helper()
	c := s.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	written, failed := 0, []error(nil)
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_, err := client.Create(t.Context(), c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("write-", i)}})
			if err != nil {
				failed = append(failed, err)
				continue
			}
			written++
		}
	})
	return func() (int, []error) { cancel(); running.Wait(); return written, failed }
}

func TestFromOneServerToThreeAndBackNoWriteFails(t *testing.T) {
	a := startServer(t, newConfig(t, "a"))
	a.put(t, "first") // the namespace exists
	stop := a.writer(t)
	b := startServer(t, a.joining(t, "b"))
	c := startServer(t, a.joining(t, "c"))
	for _, s := range []*testServer{b, c} {
		if err := a.remove(t, s.cfg.NodeName); err != nil {
			t.Fatal(err)
		}
		// A removed server ends, and says why.
		select {
		case <-s.done:
		case <-time.After(patience):
			t.Fatalf("server %s still runs", s.cfg.NodeName)
		}
		if s.err == nil || !strings.Contains(s.err.Error(), "removed") {
			t.Errorf("server %s ends with %v", s.cfg.NodeName, s.err)
		}
		if err := refused(t, s.cfg); err == nil || !strings.Contains(err.Error(), "removed") {
			t.Errorf("server %s starts again with %v", s.cfg.NodeName, err)
		}
	}
	written, failed := stop()
	if len(failed) > 0 || written == 0 {
		t.Errorf("%d writes, %d of them failed: %v", written, len(failed), failed)
	}
	if members := a.members(t); len(members) != 1 || members[0].Name != "a" {
		t.Errorf("members %+v", members)
	}
	t.Logf("%d writes", written)
}

func TestTheLastVoterStays(t *testing.T) {
	a := startServer(t, newConfig(t, "a"))
	if err := a.remove(t, "a"); err == nil || !strings.Contains(err.Error(), "the last voter") {
		t.Errorf("got %v", err)
	}
	if err := a.remove(t, "x"); err == nil || !strings.Contains(err.Error(), `no member "x"; the members are a`) {
		t.Errorf("got %v", err)
	}
	b := startServer(t, a.joining(t, "b"))
	c := startServer(t, a.joining(t, "c"))
	c.end(t)
	if err := a.remove(t, "b"); err == nil || !strings.Contains(err.Error(), "a majority must answer") {
		t.Errorf("without c, b cannot go: %v", err)
	}
	var list member.List
	if err := a.ask(t, http.MethodPost, member.PromotePath, member.Request{Name: "b"}, &list); err == nil || !strings.Contains(err.Error(), "voter already") {
		t.Errorf("got %v", err)
	}
	// The one that is gone can, and then the leader itself.
	if err := a.remove(t, "c"); err != nil {
		t.Error(err)
	}
	if err := b.remove(t, "a"); err != nil {
		t.Error(err)
	}
	b.put(t, "alone")
}

// interrupted returns a server that has fetched the keys, and has lost the token.
func interrupted(t *testing.T, a *testServer, name string) *testServer {
	t.Helper()
	s := &testServer{cfg: a.joining(t, name)}
	if err := os.MkdirAll(s.cfg.DataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	own := *s.cfg
	if err := joinServers(t.Context(), &own, nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	s.cfg.Join, s.cfg.TokenFile = "", ""
	return s
}

// added adds the interrupted server's member, and records it as the server does.
func (s *testServer) added(t *testing.T, a *testServer, opened bool) member.List {
	t.Helper()
	var list member.List
	if err := a.ask(t, http.MethodPost, member.AddPath, member.Request{Name: s.cfg.NodeName, PeerURL: "https://" + s.cfg.PeerAddress()}, &list); err != nil {
		t.Fatal(err)
	}
	joined, err := controlplane.LoadJoined(s.cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	joined.Member, joined.Opened = list.Added, opened
	if err := joined.Save(s.cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	return list
}

// startLearner starts and stops the interrupted server's store, which gets no vote.
func (s *testServer) startLearner(t *testing.T, list member.List) {
	t.Helper()
	if _, err := pki.Open(pki.Config{Dir: s.cfg.Path("pki"), PeerNames: []string{s.cfg.NodeName, "localhost", "127.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return s.cfg.Path("pki", "etcd", name) }
	peers := &etcd.PeerOptions{Name: s.cfg.NodeName, Listen: s.cfg.PeerListen, Advertise: s.cfg.PeerAddress(), CertFile: file("peer.crt"), KeyFile: file("peer.key"), CAFile: file("ca.crt")}
	for _, m := range list.Members {
		id, err := member.ParseID(m.ID)
		if err != nil {
			t.Fatal(err)
		}
		peers.Join = append(peers.Join, etcd.Member{ID: id, Name: m.Name, PeerURL: m.PeerURL, Learner: m.Learner})
	}
	engine, err := etcd.Open(t.Context(), etcd.Options{DataDir: s.cfg.Path("etcd"), Peers: peers})
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, a *testServer, name string) {
	t.Helper()
	if err := a.remove(t, name); err != nil {
		t.Fatal(err)
	}
}

func idOf(t *testing.T, a *testServer, name string) string {
	t.Helper()
	for _, m := range a.members(t) {
		if m.Name == name {
			return m.ID
		}
	}
	return ""
}

func TestAnInterruptedJoinGoesOn(t *testing.T) {
	a := startServer(t, newConfig(t, "a"))

	t.Run("before the keys are written", func(t *testing.T) {
		cfg := a.joining(t, "b")
		if err := os.MkdirAll(cfg.Path("pki.joining", "etcd"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := (&controlplane.Joined{Server: cfg.Join}).Save(cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		token := cfg.TokenFile
		cfg.Join, cfg.TokenFile = "", ""
		if err := refused(t, cfg); err == nil || !strings.Contains(err.Error(), "--token-file is missing") {
			t.Errorf("without a token: %v", err)
		}
		if _, err := os.Stat(cfg.Path("etcd")); !os.IsNotExist(err) {
			t.Error("it has made a cluster of its own")
		}
		cfg.TokenFile = token // from the record it knows the server
		startServer(t, cfg)
		remove(t, a, "b")
	})
	t.Run("before the member is added", func(t *testing.T) {
		s := interrupted(t, a, "b")
		startServer(t, s.cfg)
		remove(t, a, "b")
	})
	t.Run("before the store is started", func(t *testing.T) {
		s := interrupted(t, a, "b")
		list := s.added(t, a, false)
		startServer(t, s.cfg)
		if id := idOf(t, a, "b"); id != list.Added {
			t.Errorf("the member is %s, not %s", id, list.Added)
		}
		remove(t, a, "b")
	})
	t.Run("while the store's first start may have begun", func(t *testing.T) {
		s := interrupted(t, a, "b")
		list := s.added(t, a, true)
		startServer(t, s.cfg)
		if id := idOf(t, a, "b"); id == list.Added || id == "" {
			t.Errorf("the member is %s", id)
		}
		if members := a.members(t); len(members) != 2 {
			t.Errorf("members %+v", members)
		}
		remove(t, a, "b")
	})
	t.Run("before the store has received anything", func(t *testing.T) {
		s := interrupted(t, a, "b")
		list := s.added(t, a, true)
		s.startLearner(t, list) // it has, but the record does not say so
		startServer(t, s.cfg)
		if id := idOf(t, a, "b"); id == list.Added || id == "" {
			t.Errorf("the member is %s", id)
		}
		remove(t, a, "b")
	})
	t.Run("before the member has a vote", func(t *testing.T) {
		s := interrupted(t, a, "b")
		list := s.added(t, a, true)
		s.startLearner(t, list)
		joined, err := controlplane.LoadJoined(s.cfg.DataDir)
		if err != nil {
			t.Fatal(err)
		}
		joined.Running = true
		if err := joined.Save(s.cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		startServer(t, s.cfg)
		if id := idOf(t, a, "b"); id != list.Added {
			t.Errorf("the member is %s, not %s", id, list.Added)
		}
	})
}

func TestAMemberThatLostItsDiskIsAddedAnew(t *testing.T) {
	a := startServer(t, newConfig(t, "a"))
	b := startServer(t, a.joining(t, "b"))
	c := startServer(t, a.joining(t, "c"))
	before := idOf(t, a, "b")
	b.end(t)
	a.put(t, "meanwhile")
	// The store is lost, the keys are not.
	if err := os.RemoveAll(b.cfg.Path("etcd")); err != nil {
		t.Fatal(err)
	}
	b.cfg.Join, b.cfg.TokenFile = "", ""
	b = startServer(t, b.cfg)
	b.sees(t, "meanwhile")
	second := idOf(t, a, "b")
	if members := a.members(t); len(members) != 3 || second == before {
		t.Errorf("members %+v", members)
	}
	// All is lost: the machine needs a token.
	b.end(t)
	if err := os.RemoveAll(b.cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	b.cfg.Join, b.cfg.TokenFile = "https://"+c.cfg.Listen, c.token(t, groupServers)
	b = startServer(t, b.cfg)
	b.sees(t, "meanwhile")
	if members := c.members(t); len(members) != 3 || idOf(t, c, "b") == second {
		t.Errorf("members %+v", members)
	}
	// The first server of a cluster comes back in the same way.
	a.end(t)
	if err := os.RemoveAll(a.cfg.Path("etcd")); err != nil {
		t.Fatal(err)
	}
	a.cfg.Join = "https://" + b.cfg.Listen
	a = startServer(t, a.cfg)
	a.sees(t, "meanwhile")
	if members := a.members(t); len(members) != 3 {
		t.Errorf("members %+v", members)
	}
}
