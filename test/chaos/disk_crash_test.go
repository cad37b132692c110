package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/test/chaos/lossydisk"
)

// diskHistories returns the number of crashes of a machine: KNARR_CHAOS_CRASHES. Without it, the
// test is skipped.
func diskHistories(t *testing.T) int {
	text := os.Getenv("KNARR_CHAOS_CRASHES")
	if text == "" {
		t.Skip("KNARR_CHAOS_CRASHES says how many crashes to make")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("KNARR_CHAOS_CRASHES=%q: a positive number is expected", text)
	}
	return n
}

// A machine that loses power loses what was not synced, with the server. The histories must be
// right all the same.
func TestALossyDiskLosesNothingAcknowledged(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	crashTimes := diskHistories(t)
	start := seed(t)
	t.Logf("KNARR_CHAOS_SEED=%d", start)
	s := &server{t: t, dir: shortDir(t)}
	lost, crashes := loseAtKills(t, s, start)
	s.run()
	if err := s.define(); err != nil {
		t.Fatal(err)
	}
	n := crashTimes
	for i := range n {
		for _, r := range round(t, s, fmt.Sprintf("round-%d", i), rand.New(rand.NewPCG(start, uint64(i)))) {
			if err := r.check(); err != nil {
				t.Fatalf("%s in history %d of seed %d, after the loss of %+v in %d crashes: %v", r.kind.name, i, start, *lost, *crashes, err)
			}
		}
	}
	t.Logf("%d histories of seed %d: %d crashes lost %d pages and %d names", n, start, *crashes, lost.Pages, lost.Names)
}

// writers create ConfigMaps until their requests fail, and remember the acknowledged ones.
type writers struct {
	next  int
	mu    sync.Mutex // guards the fields below
	acked map[string]string
	errs  []error
}

// write writes from a few clients until ctx ends or a client gets no answer.
func (w *writers) write(ctx context.Context, client *kubernetes.Clientset) {
	var all sync.WaitGroup
	for i := range 4 {
		w.next++
		prefix := fmt.Sprintf("crash-%d-%d", w.next, i)
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, n)}, Data: map[string]string{valueKey: prefix}}
				limited, cancel := context.WithTimeout(ctx, 10*time.Second)
				_, err := client.CoreV1().ConfigMaps("default").Create(limited, m, metav1.CreateOptions{})
				cancel()
				w.mu.Lock()
				if err == nil {
					w.acked[m.Name] = prefix
				} else {
					w.errs = append(w.errs, err)
				}
				w.mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
}

// check compares a list with the acknowledged writes.
func (w *writers) check(ctx context.Context, client *kubernetes.Clientset) error {
	list, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	missing := maps.Clone(w.acked)
	for i := range list.Items {
		m := &list.Items[i]
		if missing[m.Name] == m.Data[valueKey] {
			delete(missing, m.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d of %d acknowledged writes are lost: %v", len(missing), len(w.acked), slicesOf(missing))
	}
	return nil
}

// slicesOf returns a few of the names.
func slicesOf(m map[string]string) (names []string) {
	for name := range m {
		if len(names) == 5 {
			break
		}
		names = append(names, name)
	}
	return names
}

// A write must not be acknowledged after a failed fsync, since its log may not be on disk and a
// second fsync would not write it. The server ends; after a crash of the machine every acknowledged
// write is there.
func TestAFailedFsyncEndsTheServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	crashTimes := diskHistories(t)
	start := seed(t)
	t.Logf("KNARR_CHAOS_SEED=%d", start)
	for name, failing := range map[string]int{"once": 1, "for ever": -1} {
		t.Run(name, func(t *testing.T) {
			s := &server{t: t, dir: filepath.Join(shortDir(t), "disk")}
			disk := mountDisk(t, s.dir)
			s.run()
			w := &writers{acked: map[string]string{}}
			for i := range uint64(crashTimes) {
				client, err := s.client("writer")
				if err != nil {
					t.Fatal(err)
				}
				p := s.process
				ctx, cancel := context.WithCancel(t.Context())
				var writing sync.WaitGroup
				writing.Go(func() { w.write(ctx, client) })
				random := rand.New(rand.NewPCG(start, i))
				time.Sleep(calm + time.Duration(random.IntN(int(calm))))
				disk.FailSyncs(failing, syscall.EIO)
				select {
				case <-p.gone:
				case <-time.After(time.Minute):
					t.Errorf("the server runs a minute after a failed fsync; its clients got %v", w.errs)
				}
				cancel()
				writing.Wait()
				s.mu.Lock()
				s.process = nil // end must not miss it
				s.mu.Unlock()
				_ = p.cmd.Process.Kill()
				<-p.gone
				disk.FailSyncs(0, 0)
				if _, err := disk.Crash(start + i); err != nil {
					t.Fatal(err)
				}
				s.start()
				after, err := s.client("reader")
				if err != nil {
					t.Fatal(err)
				}
				if err := w.check(t.Context(), after); err != nil {
					t.Fatalf("crash %d of seed %d: %v", i, start, err)
				}
			}
			t.Logf("%d acknowledged writes, none lost", len(w.acked))
		})
	}
}

// One of three machines loses power again and again. The cluster serves on, and the member comes
// back with a log that the others agree with.
func TestALossyDiskOfOneOfThreeServers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	crashTimes := diskHistories(t)
	start := seed(t)
	t.Logf("KNARR_CHAOS_SEED=%d", start)
	disks := make([]*lossydisk.Disk, 3)
	c := startCluster(t, 3, func(i int, o *memberOptions) {
		dir := filepath.Join(shortDir(t), "disk")
		disks[i] = mountDisk(t, dir)
		o.dataDir = filepath.Join(dir, "data")
	})
	w, errLost := &writers{acked: map[string]string{}}, error(nil)
	for i := range uint64(crashTimes) {
		random := rand.New(rand.NewPCG(start, i))
		m := random.IntN(3)
		witness := c.members[(m+1)%3]
		client, err := kubernetes.NewForConfig(c.members[random.IntN(3)].config("writer", 2))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), calm+time.Second)
		var writing sync.WaitGroup
		writing.Go(func() { w.write(ctx, client) })
		time.Sleep(calm + time.Duration(random.IntN(int(calm))))
		c.endMember(c.members[m], syscall.SIGKILL)
		if _, err := disks[m].Crash(start + i); err != nil {
			t.Fatal(err)
		}
		c.members[m].launch()
		writing.Wait()
		cancel()
		for _, each := range []*member{c.members[m], witness} {
			if err := each.waitReady(eventually); err != nil {
				t.Fatalf("crash %d of seed %d: %v", i, start, err)
			}
			reader, err := kubernetes.NewForConfig(each.config("reader", 2))
			if err != nil {
				t.Fatal(err)
			}
			if err := w.check(t.Context(), reader); err != nil {
				errLost = errors.Join(errLost, fmt.Errorf("crash %d of seed %d: %s: %w", i, start, each.host.name, err))
			}
		}
		if errLost != nil {
			t.Fatal(errLost)
		}
	}
	t.Logf("%d acknowledged writes, none lost", len(w.acked))
}
