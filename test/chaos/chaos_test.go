// Package chaos kills, restarts and compacts the API server under load, and holds what its clients saw against a model: reads and
// writes are linearizable, a list is the state at its revision, a watch tells every change once and in order, and nothing that was
// acknowledged is lost. It needs `make build`; `make chaos` makes thousands of histories, `make test` a few.
package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// histories says how many to make: KNARR_CHAOS_HISTORIES, or as many as take under a minute.
func histories(t *testing.T) int {
	text := os.Getenv("KNARR_CHAOS_HISTORIES")
	if text == "" {
		return 16
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("KNARR_CHAOS_HISTORIES=%q: a number is expected", text)
	}
	return n
}

// seed makes a run repeatable as far as its choices go: KNARR_CHAOS_SEED, or the time.
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
	total := 0
	for i := range histories(t) {
		h, plain, selecting := round(t, s, fmt.Sprintf("round-%d", i), rand.New(rand.NewPCG(start, uint64(i))))
		if err := h.check(plain, selecting); err != nil {
			t.Fatalf("history %d of seed %d: %v", i, start, err)
		}
		total += len(h.ops)
	}
	t.Logf("%d operations in %d histories", total, histories(t))
}

const (
	actors    = 5
	followers = 3
	names     = 3
	calm      = 150 * time.Millisecond // between two blows
)

// round makes one history: clients at work in a namespace of their own while the server dies and comes back.
func round(t *testing.T, s *server, namespace string, random *rand.Rand) (h *history, plain, selecting []*follower) {
	t.Helper()
	h = &history{began: time.Now()}
	admin, err := s.client("admin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var list []string
	for i := range names {
		list = append(list, fmt.Sprintf("object-%d", i))
	}

	working, stopWork := context.WithCancel(t.Context())
	watching, stopWatch := context.WithCancel(t.Context())
	var workers, watchers sync.WaitGroup
	for i := range followers + 2 {
		c, err := s.client(fmt.Sprintf("follower-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		f := &follower{name: fmt.Sprint(i), api: c.CoreV1().ConfigMaps(namespace)}
		switch i {
		case followers:
			f.selector.LabelSelector = "chosen=yes"
			f.matches = func(m *corev1.ConfigMap) bool { return m.Labels["chosen"] != "" }
			selecting = append(selecting, f)
		case followers + 1:
			f.selector.FieldSelector = "metadata.name=" + list[0]
			f.matches = func(m *corev1.ConfigMap) bool { return m.Name == list[0] }
			selecting = append(selecting, f)
		default:
			plain = append(plain, f)
		}
		watchers.Go(func() { f.follow(watching) })
	}
	for i := range actors {
		c, err := s.client(fmt.Sprintf("actor-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		a := &actor{id: i, h: h, api: c.CoreV1().ConfigMaps(namespace), names: list, version: map[string]string{},
			random: rand.New(rand.NewPCG(random.Uint64(), uint64(i)))}
		workers.Go(func() { a.act(working) })
	}
	for range 1 + random.IntN(3) {
		time.Sleep(calm + time.Duration(random.IntN(int(calm))))
		blow := syscall.SIGKILL
		if random.IntN(4) == 0 {
			blow = syscall.SIGTERM
		}
		s.end(blow)
		h.died()
		s.start()
	}
	time.Sleep(calm)
	stopWork()
	workers.Wait()
	time.Sleep(calm) // the last events are on their way
	stopWatch()
	watchers.Wait()
	return h, plain, selecting
}

// configMap is the object that a change tells of, as far as selectors look at it.
func (c change) configMap() *corev1.ConfigMap {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: c.name}}
	if c.chosen {
		obj.Labels = map[string]string{"chosen": "yes"}
	}
	return obj
}
