package etcd

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// Environment of the kill test. KNARR_KILL_ROUNDS is the number of kills (default 6; some hundreds
// before a release).
const (
	killRounds = "KNARR_KILL_ROUNDS"
	killChild  = "KNARR_KILL_CHILD" // set in the child: its data folder
	killFrom   = "KNARR_KILL_FROM"  // the number of the child's first write
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killChild); dir != "" {
		writeUntilKilled(dir)
	}
	os.Exit(m.Run())
}

// writeUntilKilled writes numbered keys from a few goroutines and prints each number after the
// write was acknowledged.
func writeUntilKilled(dir string) {
	from, _ := strconv.Atoi(os.Getenv(killFrom))
	e, err := Open(context.Background(), Options{DataDir: dir})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("open")
	numbers := make(chan int)
	for range 4 {
		go func() {
			for n := range numbers {
				r, err := e.Commit(context.Background(), nil, store.Op{Key: key(n), Value: []byte(strings.Repeat(fmt.Sprint(n), 100))})
				if err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				fmt.Fprintf(os.Stdout, "ack %d %d\n", n, r.Revision)
			}
		}()
	}
	for n := from; ; n++ {
		numbers <- n
	}
}

func key(n int) string { return fmt.Sprintf("/k/%09d", n) }

func TestKillNineLosesNothingAcknowledged(t *testing.T) {
	rounds := 6
	if s := os.Getenv(killRounds); s != "" {
		rounds, _ = strconv.Atoi(s)
	} else if testing.Short() {
		t.Skip("short")
	}
	dir := dataDir(t)
	acked := map[int]int64{} // number → revision
	next := 0
	for round := range rounds {
		lived := time.Duration(rand.IntN(250)) * time.Millisecond
		next = killedRun(t, dir, next, lived, acked)
		checkNothingLost(t, dir, round, acked)
	}
	t.Logf("%d kills, %d acknowledged writes, none lost", rounds, len(acked))
}

// killedRun starts a child and kills it after the given time. It records the writes that the child
// acknowledged, and returns the next number to write.
func killedRun(t *testing.T, dir string, from int, lived time.Duration, acked map[int]int64) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), killChild+"="+dir, killFrom+"="+strconv.Itoa(from))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	next := from
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var n int
		var rev int64
		switch line := lines.Text(); {
		case line == "open":
			time.AfterFunc(lived, func() { cmd.Process.Kill() })
		case strings.HasPrefix(line, "error"):
			t.Errorf("child: %s", line)
		default:
			if _, err := fmt.Sscanf(line, "ack %d %d", &n, &rev); err != nil {
				continue // cut off by the kill, so not acknowledged
			}
			acked[n] = rev
			next = max(next, n+1)
		}
	}
	cmd.Wait()
	return next + 10 // beyond all writes in flight
}

func checkNothingLost(t *testing.T, dir string, round int, acked map[int]int64) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "member")); err != nil {
		t.Fatal(err)
	}
	e, err := Open(t.Context(), Options{DataDir: dir})
	if err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	defer e.Close()
	r, err := e.Range(t.Context(), "/k/", store.RangeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]store.KeyValue, len(r.KVs))
	for _, kv := range r.KVs {
		found[kv.Key] = kv
	}
	for n, rev := range acked {
		kv, ok := found[key(n)]
		if !ok {
			t.Fatalf("round %d: write %d, acknowledged at revision %d, is lost", round, n, rev)
		}
		if kv.ModRevision != rev || string(kv.Value) != strings.Repeat(fmt.Sprint(n), 100) {
			t.Fatalf("round %d: write %d, acknowledged at revision %d, came back at %d with other bytes", round, n, rev, kv.ModRevision)
		}
	}
}
