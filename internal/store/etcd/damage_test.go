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
