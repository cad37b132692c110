package etcd

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// residentPages returns the part of a file that /proc counts as this process's memory.
func residentPages(t *testing.T, path string) string {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(smaps), path+"\n")
	if !ok {
		t.Fatalf("%s is not mapped", path)
	}
	for line := range strings.Lines(after) {
		if size, ok := strings.CutPrefix(line, "Rss:"); ok {
			return strings.TrimSpace(size)
		}
	}
	t.Fatal("there is no size")
	return ""
}

func TestPagesOfTheFileAreReleasedWhileItIsUsed(t *testing.T) {
	e, err := Open(t.Context(), Options{DataDir: dataDir(t), UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	want := bytes.Repeat([]byte("x"), 1<<20)
	for i := range 4 {
		if _, err := e.Commit(t.Context(), nil, store.Op{Key: fmt.Sprintf("/registry/a/%d", i), Value: want}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Defragment(t.Context()); err != nil { // this also reads the file
		t.Fatal(err)
	}
	// etcd may be reading the file now.
	for deadline := time.Now().Add(time.Minute); ; {
		e.forgetPages()
		size := residentPages(t, e.path)
		if size == "0 kB" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s of the file are resident", size)
		}
	}
	kv, _, err := e.Get(t.Context(), "/registry/a/3", 0)
	if err != nil || kv == nil || !bytes.Equal(kv.Value, want) {
		t.Errorf("the write is missing: %v", err)
	}
}

// For the race detector and the kernel: no page may be released that is mapped for another purpose
// by now.
func TestPagesAreReleasedDuringOtherOperations(t *testing.T) {
	e, err := Open(t.Context(), Options{DataDir: dataDir(t), UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 50 {
				key := fmt.Sprintf("/registry/a/%d-%d", i, n)
				if _, err := e.Commit(t.Context(), nil, store.Op{Key: key, Value: bytes.Repeat([]byte{byte(n)}, 10000)}); err != nil {
					t.Error(err)
					return
				}
				if kv, _, err := e.Get(t.Context(), key, 0); err != nil || kv == nil || kv.Value[9999] != byte(n) {
					t.Errorf("%s: %v, %v", key, kv, err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 100 {
			e.forgetPages()
		}
	})
	wg.Go(func() {
		for range 3 {
			if err := e.Defragment(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	wg.Go(func() { e.Close() })
	e.forgetPages()
	wg.Wait()
	e.forgetPages()
}
