package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// serverHistories returns the number of histories of several servers to make:
// KNARR_CHAOS_HISTORIES, or what fits into some minutes.
func serverHistories(t *testing.T) (n int, enough time.Duration) {
	chooseFaults(t)
	if os.Getenv("KNARR_CHAOS_HISTORIES") == "" {
		lengths = lengths[:min(len(lengths), 10)] // longer ones take too long
		return 24, 2 * time.Minute
	}
	n, _ = histories(t)
	return n, math.MaxInt64
}

// serverCount returns the number of servers of a cluster: KNARR_CHAOS_SERVERS, or 3.
func serverCount(t *testing.T) int {
	text := os.Getenv("KNARR_CHAOS_SERVERS")
	if text == "" {
		return 3
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 3 || n > 9 {
		t.Fatalf("KNARR_CHAOS_SERVERS=%q: a number from 3 to 9 is expected", text)
	}
	return n
}

// TestServersHistories is TestHistoriesAreLinearizable for a cluster of servers, whose clients use
// all of them. Processes, links and disks fail in random combination.
func TestServersHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	start := seed(t)
	t.Logf("KNARR_CHAOS_SEED=%d", start)
	c := startJudged(t, serverCount(t), nil)
	n, enough := serverHistories(t)
	whole := 0 // histories whose changes of pods were seen without a gap
	total, made := map[string]*counts{}, 0
	for i := range clusterKinds {
		total[clusterKinds[i].name] = &counts{}
	}
	for began := time.Now(); made < n && time.Since(began) < enough && !t.Failed(); made++ {
		random := rand.New(rand.NewPCG(start, uint64(made)))
		d := &diary{began: time.Now()}
		records, w, err := c.round(t, fmt.Sprintf("round-%d", made), random, d)
		if err == nil {
			var all bool
			if all, err = w.check(); all {
				whole++
			}
		}
		for _, r := range records {
			if err == nil {
				if err = r.check(); err != nil {
					err = fmt.Errorf("%s: %w", r.kind.name, err)
				}
			}
			total[r.kind.name].sum(&r.h.counts)
		}
		if err != nil || t.Failed() {
			t.Fatalf("history %d of seed %d: %v\nfaults:\n%v", made, start, err, d)
		}
		if testing.Verbose() {
			t.Logf("history %d took %.1f s:\n%v", made, time.Since(d.began).Seconds(), d)
		}
	}
	t.Logf("%d histories of seed %d: %v; pods of %d histories were judged", made, start, total, whole)
	if made > 0 && whole == 0 {
		t.Error("the watches of pods had gaps in all histories")
	}
}

// startJudged starts a cluster with nodes and the kinds of histories. Its clients notice a dead
// connection within seconds.
func startJudged(t *testing.T, n int, change func(i int, o *memberOptions)) *cluster {
	t.Helper()
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "3")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "2")
	c := startCluster(t, n, change)
	if err := c.define(); err != nil {
		t.Fatal(err)
	}
	nodes, stopNodes := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		stopNodes()
		running.Wait()
	})
	if err := c.hollowNodes(nodes, &running); err != nil {
		t.Fatal(err)
	}
	return c
}

// define creates the custom kind and waits until all servers serve it.
func (c *cluster) define() error {
	for i, m := range c.members {
		client, err := kubernetes.NewForConfig(m.config("definer", 2))
		if err != nil {
			return err
		}
		if err := define(client, i == 0); err != nil {
			return fmt.Errorf("%s: %w", m.host.name, err)
		}
	}
	return nil
}

// round makes one history of each kind while faults happen, and checks that the cluster has healed.
func (c *cluster) round(t *testing.T, namespace string, random *rand.Rand, d *diary) (records []*record, w *crew, err error) {
	t.Helper()
	admin, err := kubernetes.NewForConfig(c.members[0].config("admin", 2))
	if err != nil {
		return nil, nil, err
	}
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return nil, nil, fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	working, stopWork := context.WithCancel(t.Context())
	watching, stopWatch := context.WithCancel(t.Context())
	var workers, watchers sync.WaitGroup
	defer func() {
		stopWork()
		workers.Wait()
		stopWatch()
		watchers.Wait()
	}()
	for i := range clusterKinds {
		r := &record{kind: &clusterKinds[i], h: &history{began: d.began, several: true}}
		records = append(records, r)
		for _, f := range r.followers(t, c.config, namespace, random) {
			watchers.Go(func() { f.follow(watching) })
		}
		if err := r.waitWatched(); err != nil {
			return records, w, err
		}
	}
	if w, err = c.startCrew(t, namespace, d, watching, &watchers); err != nil {
		return records, w, err
	}
	churning := rand.New(rand.NewPCG(random.Uint64(), 0))
	workers.Go(func() { w.churn(working, churning) })
	c.onEnd(d, func(told time.Time) {
		w.pods.h.ended(told)
		for _, r := range records {
			r.h.ended(told)
		}
	})
	for _, r := range records {
		for _, a := range r.actors(t, c.config, namespace, random) {
			workers.Go(func() { a.act(working) })
		}
	}
	faults := plan(random, len(c.members))

	if err := c.run(t.Context(), faults, d); err != nil {
		return records, w, err
	}
	if err := c.heal(t.Context(), namespace, d); err != nil {
		return records, w, fmt.Errorf("the cluster has not healed: %w", err)
	}
	time.Sleep(calm)
	stopWork()
	workers.Wait()
	for _, r := range records {
		if err := c.finish(t, r, namespace); err != nil {
			return records, w, fmt.Errorf("%s: the cluster has not healed: %w", r.kind.name, err)
		}
	}
	return records, w, w.finish(t.Context())
}

// waitWatched waits until a follower has begun, so that the log of changes has a beginning.
func (r *record) waitWatched() error {
	for deadline := time.Now().Add(eventually); r.h.revision(rand.New(rand.NewPCG(0, 0))) == ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("no watch begins in a healthy cluster")
		}
	}
	return nil
}

// last is the name of the object that ends a history.
const last = "object-last"

// finish writes a last object through one server, and waits until all watches have it and all
// servers give the same list.
func (c *cluster) finish(t *testing.T, r *record, namespace string) error {
	random := rand.New(rand.NewPCG(0, 0))
	var end int64
	for i, m := range c.members {
		where := func(client string, version int) (*rest.Config, error) { return m.config(client, version), nil }
		a := &actor{id: actors + i, kind: r.kind, h: r.h, api: r.open(t, where, namespace, "finisher", random), seen: map[string]item{}, random: random}
		if i == 0 {
			in := input{do: create, name: last, value: r.h.next(), chosen: true}
			a.do(t.Context(), in, func(ctx context.Context) (item, error) {
				return a.api.create(ctx, in.object(), metav1.CreateOptions{})
			})
			var err error
			if end, err = strconv.ParseInt(a.seen[last].version, 10, 64); err != nil {
				return fmt.Errorf("%s accepts no write: %v", m.host.name, r.h.lastAnomaly())
			}
			r.h.last = end
		}
		a.names = []string{objectName(0), objectName(1), objectName(2), last}
		l := listing{items: map[string]mark{}, consistent: true, asked: r.h.now()}
		items, whole := a.pages(t.Context(), metav1.ListOptions{}, &l)
		if !whole {
			return fmt.Errorf("%s gives no list: %v", m.host.name, r.h.lastAnomaly())
		}
		seen := map[string]item{}
		for _, i := range items {
			seen[i.name] = i
		}
		for _, name := range a.names {
			out := output{outcome: notFound}
			if i, ok := seen[name]; ok {
				out = output{outcome: done, item: i}
			}
			r.h.record(a.id, input{do: get, name: name}, l.asked, out)
		}
	}
	if err := c.sameLists(t.Context(), r.kind.path(namespace), end); err != nil {
		return err
	}
	for _, f := range r.plain {
		if f.begins == resumed {
			continue
		}
		for deadline := time.Now().Add(eventually); f.at.Load() < end; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("watch %s is at %d, not at %d", f.name, f.at.Load(), end)
			}
		}
	}
	return nil
}

// sameLists checks that all servers give the same list at a revision, byte for byte.
func (c *cluster) sameLists(ctx context.Context, path string, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, eventually)
	defer cancel()
	var first string
	for i, m := range c.members {
		client, err := kubernetes.NewForConfig(m.config("comparer", 2))
		if err != nil {
			return err
		}
		raw, err := client.Discovery().RESTClient().Get().AbsPath(path).Param("resourceVersion", fmt.Sprint(revision)).
			Param("resourceVersionMatch", "Exact").Do(ctx).Raw()
		if err != nil {
			if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code == http.StatusGone {
				return nil // compacted already: the histories have later lists
			}
			return fmt.Errorf("%s gives no list at %d: %w", m.host.name, revision, err)
		}
		if i == 0 {
			first = string(raw)
		} else if string(raw) != first {
			return fmt.Errorf("the list of %s at %d is\n%s\nand that of %s is\n%s", m.host.name, revision, raw, c.members[0].host.name, first)
		}
	}
	return nil
}
