package snapshots

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// childFolder makes the test program take snapshots into that folder until it is killed.
const childFolder = "KNARR_TEST_SNAPSHOTS_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childFolder); dir != "" {
		fmt.Println(takeForever(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func takeForever(dir string) error {
	ctx := context.Background()
	db, err := etcd.Open(ctx, etcd.Options{DataDir: filepath.Join(dir, "store"), UnsafeNoSync: true, Log: quiet()})
	if err != nil {
		return err
	}
	folder := Folder(filepath.Join(dir, "snapshots"))
	for i := 0; ; i++ {
		if _, err := db.Commit(ctx, nil, store.Op{Key: fmt.Sprintf("/registry/things/%d", i), Value: []byte("value")}); err != nil {
			return err
		}
		work, err := NewWork(string(folder))
		if err != nil {
			return err
		}
		// A millisecond counts as a second, since names of one second are equal.
		now := time.Unix(time.Now().UnixMilli()%1e9, 0)
		req := request(db, ScheduledName("one", now))
		taken, err := Take(ctx, work, req)
		if err != nil {
			return err
		}
		if err := folder.Put(ctx, taken); err != nil {
			return err
		}
		if _, err := Prune(ctx, folder, Retention{Keep: 2}, now); err != nil {
			return err
		}
		if err := work.Close(); err != nil {
			return err
		}
	}
}

func TestAKilledProcessLeavesNoHalfSnapshot(t *testing.T) {
	dir := t.TempDir()
	folder, program := Folder(filepath.Join(dir, "snapshots")), os.Args[0]
	for round := range 12 {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), childFolder+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if round == 0 { // until there is a snapshot at all
			for end := time.Now().Add(30 * time.Second); len(goodIn(t, folder)) == 0 && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
		} else {
			time.Sleep(100*time.Millisecond + rand.N(400*time.Millisecond))
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 1000)
		n, _ := out.Read(said)
		if err := cmd.Wait(); err == nil || n > 0 {
			t.Fatalf("the process ended by itself: %v: %s", err, said[:n])
		}
		entries, err := folder.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(entries, Entry.Good) {
			t.Fatalf("no good snapshot is left: %+v", entries)
		}
		for _, e := range entries {
			_, _, err := Fetch(t.Context(), folder, e.Name, nil)
			if err == nil && e.Record == nil { // killed between naming the file and its record
				_, err = etcd.InspectSnapshot(folder.At(e.Name))
			}
			if err != nil && !errors.Is(err, ErrNotFound) {
				t.Errorf("%s: %v", e.Name, err)
			}
		}
	}
	if err := folder.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range visible(t, string(folder)) {
		if name[0] == '.' {
			t.Errorf("left behind: %s", name)
		}
	}
}
