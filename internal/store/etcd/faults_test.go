package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/store"
)

// faulty is set for a process of this test whose database breaks at run time: it names the damage.
const faulty = "KNARR_TEST_FAULTY"

// A page that breaks while the store runs ends the engine with the file and the way back. It is no
// fault of the request that reads it, and the process ends in order.
func TestPagesThatBreakAtRunTimeAreNamed(t *testing.T) {
	if damage := os.Getenv(faulty); damage != "" {
		breakPages(t, damage)
		return
	}
	t.Parallel()
	for _, damage := range []string{"overwritten", "cut off"} {
		t.Run(damage, func(t *testing.T) {
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPagesThatBreakAtRunTimeAreNamed$", "-test.v")
			child.Env = append(os.Environ(), faulty+"="+damage)
			if out, err := child.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func breakPages(t *testing.T, damage string) {
	dir := dataDir(t)
	e := open(t, Options{DataDir: dir, UnsafeNoSync: true})
	quietKeepers([]*Engine{e})
	for i := range 200 {
		must(t, tryWrite(t, e, fmt.Sprintf("/k/%d", i), make([]byte, 2<<10)))
	}
	e.server.Backend().ForceCommit()
	path := filepath.Join(dir, "member", "snap", "db")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const headers = 2 * 4096
	if damage == "cut off" {
		must(t, f.Truncate(headers))
	} else {
		_, err := f.WriteAt(make([]byte, 400<<10), headers)
		must(t, err)
	}
	_, err = e.Range(t.Context(), "/k/", store.RangeOptions{})
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the read returns %v", err)
	}
	cause := e.Failure()
	if !errors.Is(cause, ErrCorrupt) || !strings.Contains(cause.Error(), path) || !strings.Contains(cause.Error(), "restore a snapshot") {
		t.Errorf("the engine's failure is %v", cause)
	}
	if _, err := e.Commit(context.Background(), nil, store.Op{Key: "/k", Value: []byte("v")}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a later write: %v", err)
	}
	must(t, e.Close())
}
