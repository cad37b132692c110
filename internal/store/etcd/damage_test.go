package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
)

// A damaged file gives an error with its name and the way back, never a panic.
func TestDamagedFilesAreNamed(t *testing.T) {
	garbage := func(from int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, int(min(info.Size(), 4<<20)-from)), from); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		file   string
		damage func(t *testing.T, path string)
	}{
		"the database is cut off":         {"member/snap/db", func(t *testing.T, path string) { must(t, os.Truncate(path, 64<<10)) }},
		"the database is empty":           {"member/snap/db", func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) }},
		"the database's header is broken": {"member/snap/db", garbage(0)},
		"the database's pages are broken": {"member/snap/db", garbage(8 << 10)},
		"the log is broken":               {"member/wal/0000000000000000-0000000000000000.wal", garbage(64)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := dataDir(t)
			e, err := Open(t.Context(), Options{DataDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 200 {
				must(t, tryWrite(t, e, fmt.Sprintf("/k/%d", i), make([]byte, 2<<10)))
			}
			must(t, e.Close())
			c.damage(t, filepath.Join(dir, c.file))

			e, err = Open(t.Context(), Options{DataDir: dir})
			if err == nil {
				e.Close()
				t.Fatal("the damaged folder was opened")
			}
			t.Log(err)
			if !errors.Is(err, ErrCorrupt) {
				t.Error("the error is not ErrCorrupt")
			}
			for _, part := range []string{filepath.Join(dir, "member", "snap", "db"), "knarr snapshot restore", "knarr member rm"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q", part)
				}
			}
		})
	}
}

func TestAMemberThatWasFoundCorruptDoesNotStart(t *testing.T) {
	dir := dataDir(t)
	e, err := Open(t.Context(), Options{DataDir: dir, UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	// As etcd's comparison of hashes does.
	raise := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: uint64(e.server.MemberID()), Alarm: pb.AlarmType_CORRUPT}
	if _, err := e.server.Alarm(t.Context(), raise); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the member goes on", func() error {
		e.keeper.hurry()
		if e.Failure() == nil {
			return errors.New("no failure")
		}
		return nil
	})
	if err := e.Health(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("health: %v", err)
	}
	e.Close()
	<-e.Done() // it still writes to its folder until then
	if _, err := Open(t.Context(), Options{DataDir: dir}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "knarr member rm") {
		t.Errorf("the next start: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// One of three members has other data than the majority. It stops for good, and the others go on.
func TestAMemberWithOtherDataIsLeftOut(t *testing.T) {
	all := make([]*Engine, 3)
	all[0], all[1], all[2] = three(t)
	var leader, bad, other *Engine
	for _, e := range all {
		switch {
		case e.server.Leader() == e.server.MemberID():
			leader = e
		case bad == nil:
			bad = e
		default:
			other = e
		}
	}
	if leader == nil || other == nil {
		t.Fatal("no leader")
	}
	must(t, tryWrite(t, leader, "/k/1", []byte("v")))
	eventually(t, "the write arrives", func() error {
		if kv, _, err := bad.Get(t.Context(), "/k/1", 0); err != nil || kv == nil {
			return fmt.Errorf("%v %w", kv, err)
		}
		return nil
	})
	// As if the disk had another value: the write does not go through raft.
	tx := bad.server.KV().Write(traceutil.TODO())
	tx.Put([]byte("/k/2"), []byte("only here"), 0)
	tx.End()
	for i := range 5 {
		must(t, tryWrite(t, leader, fmt.Sprintf("/k/more/%d", i), []byte("v")))
	}
	eventually(t, "the other data is not found", func() error {
		// etcd's own check runs once a minute.
		_ = leader.Compact(t.Context(), leader.observed.Load())
		leader.server.CorruptionChecker().CompactHashCheck()
		_ = tryWrite(t, leader, "/k/on", []byte("v"))
		bad.keeper.hurry()
		if bad.Failure() == nil {
			return errors.New("the member goes on")
		}
		return nil
	})
	t.Log(bad.Failure())
	if err := bad.Health(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("the bad member's health: %v", err)
	}
	if _, err := os.Stat(filepath.Join(bad.dir, corruptMark)); err != nil {
		t.Error(err)
	}
	for _, e := range []*Engine{leader, other} {
		if err := e.Failure(); err != nil {
			t.Errorf("a sound member has failed: %v", err)
		}
	}
	eventually(t, "writes do not go on", func() error {
		leader.keeper.hurry()
		other.keeper.hurry()
		return tryWrite(t, leader, "/k/after", []byte("v"))
	})
	eventually(t, "the sound members are not healthy", other.Health)
	<-bad.Done() // it still writes to its folder until then
}
