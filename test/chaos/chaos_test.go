// Package chaos kills, restarts and compacts the API server under load. It compares what its
// clients saw of a built-in kind and of a custom kind with a model, and checks that
//
//   - reads, writes, preconditions, statuses, deletions of collections and finalizers are
//     linearizable, and a dry run changes nothing;
//   - a list is the state at its revision, also with a label selector, in pages, or at an older
//     revision;
//   - a watch delivers every change once and in order from any start, also in all namespaces;
//   - no acknowledged write is lost, and no event appears that no client wrote.
//
// It needs `make build`. `make chaos` makes thousands of histories, `make test` a few.
package chaos

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// histories returns the number of histories to make: KNARR_CHAOS_HISTORIES, or 24 but at most what
// fits into some minutes.
func histories(t *testing.T) (n int, enough time.Duration) {
	text := os.Getenv("KNARR_CHAOS_HISTORIES")
	if text == "" {
		return 24, 3 * time.Minute
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("KNARR_CHAOS_HISTORIES=%q: a number is expected", text)
	}
	return n, math.MaxInt64
}

// seed makes the random choices of a run repeatable: KNARR_CHAOS_SEED, or the time.
func seed(t *testing.T) uint64 {
	s := uint64(time.Now().UnixNano())
	if text := os.Getenv("KNARR_CHAOS_SEED"); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("KNARR_CHAOS_SEED=%q: a number is expected", text)
		}
	}
	return s
}

func TestHistoriesAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	start := seed(t)
	t.Logf("KNARR_CHAOS_SEED=%d", start)
	s := startServer(t)
	if err := s.define(); err != nil {
		t.Fatal(err)
	}
	n, enough := histories(t)
	total, made := map[string]*counts{}, 0
	for i := range kinds {
		total[kinds[i].name] = &counts{}
	}
	lacking := func() string {
		for name, c := range total {
			if what := c.missing(); what != "" {
				return fmt.Sprintf("no %s of %s", what, name)
			}
		}
		return ""
	}
	// Few histories, or short ones on a slow machine, may lack a feature. Then make some more.
	for began := time.Now(); made < n && time.Since(began) < enough || lacking() != "" && time.Since(began) < patience; made++ {
		for _, r := range round(t, s, fmt.Sprintf("round-%d", made), rand.New(rand.NewPCG(start, uint64(made)))) {
			if err := r.check(); err != nil {
				t.Fatalf("%s in history %d of seed %d: %v", r.kind.name, made, start, err)
			}
			total[r.kind.name].sum(&r.h.counts)
		}
		if made%100 == 99 {
			t.Logf("%d histories: %v", made+1, total)
		}
	}
	t.Logf("%d histories of seed %d: %v; the server was %s", made, start, total, s.events())
	if what := lacking(); what != "" {
		t.Errorf("the histories show nothing: %s", what)
	}
}

// patience limits the extra histories for missing features.
const patience = 5 * time.Minute

const (
	actors    = 3 // of each kind
	followers = 3
	names     = 3
	calm      = 150 * time.Millisecond // between two failures
)

// record is what all clients saw of one kind.
type record struct {
	kind             *kind
	h                *history
	plain, selecting []*follower
}

func (r *record) check() error { return r.h.check(r.plain, r.selecting) }

// round makes one history of each kind: clients work in their own namespace while the server dies
// and comes back.
func round(t *testing.T, s *server, namespace string, random *rand.Rand) (records []*record) {
	t.Helper()
	admin, err := s.client("admin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	working, stopWork := context.WithCancel(t.Context())
	watching, stopWatch := context.WithCancel(t.Context())
	defer stopWork()
	defer stopWatch()
	var workers, watchers sync.WaitGroup
	for i := range kinds {
		r := &record{kind: &kinds[i], h: &history{began: time.Now()}}
		records = append(records, r)
		for _, f := range r.followers(t, s.config, namespace, random) {
			watchers.Go(func() { f.follow(watching) })
		}
		for _, a := range r.actors(t, s.config, namespace, random) {
			workers.Go(func() { a.act(working) })
		}
	}
	for range 1 + random.IntN(3) {
		time.Sleep(calm + time.Duration(random.IntN(int(calm))))
		blow := syscall.SIGKILL
		if random.IntN(4) == 0 {
			blow = syscall.SIGTERM
		}
		told := time.Now()
		s.end(blow)
		for _, r := range records {
			r.h.ended(told)
		}
		s.start()
	}
	time.Sleep(calm)
	stopWork()
	workers.Wait()
	time.Sleep(calm) // the last events are on their way
	stopWatch()
	watchers.Wait()
	return records
}

func objectName(i int) string { return fmt.Sprintf("object-%d", i) }

// configure returns the configuration of a client with its own connections, over this version of
// HTTP.
type configure func(client string, version int) (*rest.Config, error)

// open returns one client's access to the kind's objects.
func (r *record) open(t *testing.T, s configure, namespace, client string, random *rand.Rand) api {
	t.Helper()
	cfg, err := s(client, 1+random.IntN(2))
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.kind.open(cfg, namespace, random.IntN(2))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (r *record) actors(t *testing.T, s configure, namespace string, random *rand.Rand) (list []*actor) {
	for i := range actors {
		a := &actor{id: i, kind: r.kind, h: r.h, api: r.open(t, s, namespace, fmt.Sprintf("%s-actor-%d", r.kind.name, i), random), seen: map[string]item{},
			random: rand.New(rand.NewPCG(random.Uint64(), uint64(i)))}
		for j := range names {
			a.names = append(a.names, objectName(j))
		}
		list = append(list, a)
	}
	return list
}

// followers returns plain followers, which start in different ways, one with a label selector and
// one with a field selector.
func (r *record) followers(t *testing.T, s configure, namespace string, random *rand.Rand) (list []*follower) {
	for i := range followers + 2 {
		name := fmt.Sprintf("%s-follower-%d", r.kind.name, i)
		f := &follower{name: name, h: r.h, begins: beginning(i % 3), random: rand.New(rand.NewPCG(random.Uint64(), uint64(i)))}
		list = append(list, f)
		where, within := namespace, ""
		if random.IntN(3) == 0 { // follows all namespaces and keeps the events of this one
			where, within = metav1.NamespaceAll, "metadata.namespace="+namespace
		}
		f.api, f.selector.FieldSelector = r.open(t, s, where, name, random), within
		switch i {
		case followers:
			f.begins, f.selector.LabelSelector = beginning(random.IntN(2)), chosen
			f.matches = func(i item) bool { return i.chosen }
		case followers + 1:
			f.begins, f.selector.FieldSelector = beginning(random.IntN(2)), strings.TrimPrefix(within+",metadata.name="+objectName(0), ",")
			f.matches = func(i item) bool { return i.name == objectName(0) }
		}
		if f.matches == nil {
			r.plain = append(r.plain, f)
		} else {
			r.selecting = append(r.selecting, f)
		}
	}
	return list
}
