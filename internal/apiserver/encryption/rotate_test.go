package encryption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// put writes a value unconditionally.
func put(t *testing.T, s store.Store, key, value string) {
	t.Helper()
	if _, err := s.Commit(t.Context(), nil, store.Op{Key: key, Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

func keysOf(kind, names string) string {
	var list []string
	for name := range strings.SplitSeq(names, ",") {
		list = append(list, fmt.Sprintf("{name: %s, secret: %s}", name, map[string]string{"a": keyA, "b": keyB}[name]))
	}
	return "- resources: [secrets, configmaps, boats.example.com]\n  providers:\n  - " + kind + ": {keys: [" + strings.Join(list, ", ") + "]}\n"
}

// rewriteAll rewrites in steps of one page, and returns the totals.
func rewriteAll(t *testing.T, s *Store) (seen, changed, calls int, broken []string) {
	t.Helper()
	for from := ""; ; {
		out, err := s.Rewrite(t.Context(), from, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		seen, changed, calls, broken = seen+out.Seen, changed+out.Changed, calls+1, append(broken, out.Broken...)
		if from = out.Next; from == "" {
			return seen, changed, calls, broken
		}
	}
}

func TestAllValuesAreEncryptedAgain(t *testing.T) {
	for _, kind := range []string{"aesgcm", "aescbc", "secretbox"} {
		t.Run(kind, func(t *testing.T) {
			db := engine(t)
			defer func() { _ = db.Close() }()
			s := wrap(t, db, keysOf(kind, "a"))
			put(t, db, "/registry/secrets/default/plain", "from before encryption")
			put(t, s, "/registry/pods/default/p", "not encrypted")
			put(t, s, "/registry/example.com/boats/default/b", "custom")
			for i := range 250 {
				put(t, s, fmt.Sprintf("/registry/secrets/default/s%03d", i), fmt.Sprint("value ", i))
				put(t, s, fmt.Sprintf("/registry/configmaps/default/c%03d", i), fmt.Sprint("value ", i))
			}
			put(t, db, "/registry/secrets/default/zbroken", "k8s:enc:"+kind+":v1:lost:xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")
			if err := s.Use(t.Context(), []byte(head+keysOf(kind, "b,a"))); err != nil {
				t.Fatal(err)
			}
			seen, changed, calls, broken := rewriteAll(t, s)
			if seen != 503 || changed != 502 || calls < 5 || !slices.Equal(broken, []string{"/registry/secrets/default/zbroken"}) {
				t.Errorf("seen %d, changed %d in %d calls, broken %v", seen, changed, calls, broken)
			}
			if _, changed, _, _ := rewriteAll(t, s); changed != 0 {
				t.Errorf("the second time, %d values were written", changed)
			}
			if err := s.Use(t.Context(), []byte(head+keysOf(kind, "b"))); err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]string{
				"/registry/secrets/default/plain": "from before encryption", "/registry/secrets/default/s249": "value 249",
				"/registry/configmaps/default/c000": "value 0", "/registry/example.com/boats/default/b": "custom", "/registry/pods/default/p": "not encrypted",
			} {
				kv, _, err := s.Get(t.Context(), key, 0)
				if err != nil || string(kv.Value) != want {
					t.Errorf("%s: %q, %v", key, kv.Value, err)
				}
				stored, _, err := db.Get(t.Context(), key, 0)
				if fresh := strings.HasPrefix(string(stored.Value), "k8s:enc:"+kind+":v1:b:"); err != nil || fresh == strings.Contains(key, "/pods/") {
					t.Errorf("%s is stored as %.30q", key, stored.Value)
				}
			}
		})
	}
}

func TestWildcardRulesAreEncryptedAgain(t *testing.T) {
	db := engine(t)
	defer func() { _ = db.Close() }()
	s := wrap(t, db, "- resources: ['*.*']\n  providers:\n"+provider("aesgcm", "a", keyA))
	put(t, s, "/registry/secrets/default/a", "one")
	put(t, s, "/registry/example.com/boats/default/b", "two")
	text := head + "- resources: ['*.*']\n  providers:\n" + provider("aesgcm", "b", keyB) + provider("aesgcm", "a", keyA)
	if err := s.Use(t.Context(), []byte(text)); err != nil {
		t.Fatal(err)
	}
	if seen, changed, _, broken := rewriteAll(t, s); seen != 2 || changed != 2 || len(broken) > 0 {
		t.Errorf("seen %d, changed %d, broken %v", seen, changed, broken)
	}
}

// slow is a store whose commits wait until they are let through.
type slow struct {
	store.Store
	began, pass chan struct{}
}

func (s *slow) Commit(ctx context.Context, c []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	s.began <- struct{}{}
	<-s.pass
	return s.Store.Commit(ctx, c, ops...)
}

func TestUseWaitsForWritesWithTheEarlierKey(t *testing.T) {
	db := engine(t)
	defer func() { _ = db.Close() }()
	under := &slow{db, make(chan struct{}), make(chan struct{})}
	s := wrap(t, under, keysOf("aesgcm", "a"))
	var done sync.WaitGroup
	done.Go(func() {
		_, _ = s.Commit(t.Context(), nil, store.Op{Key: "/registry/secrets/default/late", Value: []byte("x")})
	})
	<-under.began
	used := make(chan error, 1)
	go func() { used <- s.Use(t.Context(), []byte(head+keysOf("aesgcm", "b,a"))) }()
	select {
	case <-used:
		t.Error("the key was replaced during a write with the earlier one")
	default:
	}
	close(under.pass)
	done.Wait()
	if err := <-used; err != nil {
		t.Fatal(err)
	}
	go func() { <-under.began }()
	if seen, changed, _, _ := rewriteAll(t, s); seen != 1 || changed != 1 {
		t.Errorf("seen %d, changed %d", seen, changed)
	}
}

// racing changes a value before each of the first commits.
type racing struct {
	store.Store
	left int
	race func()
}

func (r *racing) Commit(ctx context.Context, c []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	if r.left > 0 {
		r.left--
		r.race()
	}
	return r.Store.Commit(ctx, c, ops...)
}

func TestANewerValueIsNotLost(t *testing.T) {
	db := engine(t)
	defer func() { _ = db.Close() }()
	const key = "/registry/secrets/default/raced"
	old := wrap(t, db, keysOf("aesgcm", "a"))
	put(t, old, key, "first")
	under := &racing{Store: db, left: 1, race: func() { put(t, old, key, "second") }}
	s := wrap(t, under, keysOf("aesgcm", "b,a"))
	if _, changed, _, _ := rewriteAll(t, s); changed != 1 {
		t.Errorf("changed %d", changed)
	}
	kv, _, err := s.Get(t.Context(), key, 0)
	stored, _, _ := db.Get(t.Context(), key, 0)
	if err != nil || string(kv.Value) != "second" || !strings.Contains(string(stored.Value[:30]), ":b:") {
		t.Errorf("%q, stored as %.30q: %v", kv.Value, stored.Value, err)
	}
}
