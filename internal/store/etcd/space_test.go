package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"

	"github.com/knarr-project/knarr/internal/store"
)

// value is a large value whose content differs from call to call.
func value(i int) []byte { return fmt.Appendf(make([]byte, 0, 256<<10), "%0*d", 250<<10, i) }

// openSmall opens an engine with the smallest quota.
func openSmall(t *testing.T, dir string) *Engine {
	t.Helper()
	e, err := Open(t.Context(), Options{DataDir: dir, UnsafeNoSync: true, Quota: LeastQuota, Vital: []string{"/registry/leases/"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func tryWrite(t *testing.T, e *Engine, key string, value []byte) error {
	t.Helper()
	_, err := e.Commit(t.Context(), nil, store.Op{Key: key, Value: value})
	return err
}

// fillUp creates large objects, then small ones, until the store refuses both. It returns the
// number of large ones.
func fillUp(t *testing.T, e *Engine) int {
	t.Helper()
	until := func(key string, value func(i int) []byte) int {
		for i := range 1000 {
			switch err := tryWrite(t, e, fmt.Sprintf("/registry/configmaps/n/%s%d", key, i), value(i)); {
			case errors.Is(err, store.ErrNoSpace):
				t.Logf("refused after %d objects: %v", i, err)
				return i
			case err != nil:
				t.Fatal(err)
			}
		}
		t.Fatal("1000 objects fit into the smallest quota")
		return 0
	}
	n := until("", value)
	until("small", func(int) []byte { return make([]byte, 1<<10) })
	return n
}

// removeAll deletes all config maps.
func removeAll(t *testing.T, e *Engine) {
	t.Helper()
	r, err := e.Range(t.Context(), "/registry/configmaps/", store.RangeOptions{KeysOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range r.KVs {
		if _, err := e.Commit(t.Context(), nil, store.Op{Key: kv.Key, Delete: true}); err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
}

// eventuallyEmpty waits until the space of removed objects is free. Writes go on meanwhile: the
// database frees pages with the next ones.
func eventuallyEmpty(t *testing.T, e *Engine) {
	t.Helper()
	eventually(t, "the space of deleted objects is not free", func() error {
		if err := tryWrite(t, e, "/registry/configmaps/n/again", []byte("small")); err != nil {
			return err
		}
		if used, err := e.Size(t.Context()); err != nil || used > LeastQuota/4 {
			return fmt.Errorf("%d bytes in use, error %v", used, err)
		}
		return nil
	})
}

func TestAtTheQuotaNothingGrowsAndDeletionsBringItBack(t *testing.T) {
	e := openSmall(t, dataDir(t))
	n := fillUp(t, e)
	if n < 80 || n > 140 {
		t.Errorf("%d objects of 250 KB fit into %d bytes", n, LeastQuota)
	}

	// The bytes in use are estimated until the next batch is written.
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = tryWrite(t, e, fmt.Sprintf("/registry/configmaps/n/new%d", i), make([]byte, 4<<10))
	}
	for _, part := range []string{"etcdserver: mvcc: database space exceeded", "32.0 MiB", "--store-quota", "delete"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("a creation at the quota: %v, want %q in it", err, part)
		}
	}
	err = nil
	for i := 1; err == nil && i < 15; i++ {
		err = tryWrite(t, e, "/registry/configmaps/n/0", append(value(0), make([]byte, i*64<<10)...))
	}
	if !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("an update that grows: %v", err)
	}
	if err := tryWrite(t, e, "/registry/configmaps/n/0", append(value(0), "a finalizer"...)); err != nil {
		t.Errorf("an update that hardly grows: %v", err)
	}
	if err := tryWrite(t, e, "/registry/leases/kube-node-lease/a", []byte("lease")); err != nil {
		t.Errorf("a new lease: %v", err)
	}
	if err := tryWrite(t, e, "/knarr/leaders/a", []byte("leader")); err != nil {
		t.Errorf("a new leader: %v", err)
	}
	if id, err := e.Grant(t.Context(), time.Minute); err != nil {
		t.Errorf("grant: %v", err)
	} else if err := e.KeepAlive(t.Context(), id); err != nil {
		t.Errorf("keep alive: %v", err)
	}
	if _, err := e.Range(t.Context(), "/registry/", store.RangeOptions{Limit: 5}); err != nil {
		t.Errorf("a list: %v", err)
	}

	removeAll(t, e)
	eventuallyEmpty(t, e)
	if alarms := e.server.Alarms(); len(alarms) > 0 {
		t.Errorf("etcd has alarms: %v", alarms)
	}
	if more := fillUp(t, e); more < n/2 {
		t.Errorf("%d objects fit again, %d before", more, n)
	}
}

// Updates at the quota add old revisions, which the engine removes by itself.
func TestAtTheQuotaOldRevisionsAreRemoved(t *testing.T) {
	e := openSmall(t, dataDir(t))
	for i := range 400 { // 100 MB of revisions of one object
		eventually(t, "an update of the same size", func() error { return tryWrite(t, e, "/registry/configmaps/n/one", value(i)) })
	}
	eventually(t, "a creation", func() error { return tryWrite(t, e, "/registry/configmaps/n/two", []byte("small")) })
	if size := e.server.Backend().Size(); size > e.space.hard {
		t.Errorf("the file has %d bytes", size)
	}
}

func TestDefragmentationReturnsSpace(t *testing.T) {
	e, err := Open(t.Context(), Options{DataDir: dataDir(t), UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i := range 400 {
		if err := tryWrite(t, e, "/registry/configmaps/n/one", value(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Compact(t.Context(), e.observed.Load()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file keeps its free pages", func() error {
		time.Sleep(time.Second) // at a low load
		if err := tryWrite(t, e, "/registry/configmaps/n/two", []byte("small")); err != nil {
			return err
		}
		if size := e.server.Backend().Size(); size > 16<<20 {
			e.keeper.hurry()
			return fmt.Errorf("%d bytes, %d in use", size, e.server.Backend().SizeInUse())
		}
		return nil
	})
	if kv, _, err := e.Get(t.Context(), "/registry/configmaps/n/one", 0); err != nil || string(kv.Value) != string(value(399)) {
		t.Errorf("the value after the defragmentation: %v", err)
	}
}

// An earlier version left a folder in which etcd's alarm is raised and the file is full.
func TestAnAlarmOfAnEarlierVersionIsEnded(t *testing.T) {
	dir := dataDir(t)
	cfg, err := serverConfig(Options{DataDir: dir, UnsafeNoSync: true}, newFailure())
	if err != nil {
		t.Fatal(err)
	}
	cfg.QuotaBackendBytes = 16 << 20
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := seed(cfg); err != nil {
		t.Fatal(err)
	}
	e := &Engine{log: slog.Default()}
	if e.server, err = etcdserver.NewServer(cfg); err != nil {
		t.Fatal(err)
	}
	e.server.Start()
	if err := e.lead(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil && i < 1000; i++ {
		_, err = e.server.Put(t.Context(), &pb.PutRequest{Key: fmt.Appendf(nil, "/registry/configmaps/n/%d", i), Value: value(i)})
	}
	if !alarmed(err) {
		t.Fatalf("etcd at its own quota: %v", err)
	}
	eventually(t, "no alarm", func() error {
		if len(e.server.Alarms()) == 0 {
			return errors.New("none")
		}
		return nil
	})
	e.server.HardStop()

	now := openSmall(t, dir)
	eventually(t, "the alarm stands", func() error {
		if alarms := now.server.Alarms(); len(alarms) > 0 {
			return fmt.Errorf("alarms: %v", alarms)
		}
		return nil
	})
	removeAll(t, now) // it may be more than the quota of today
	eventually(t, "no write", func() error { return tryWrite(t, now, "/registry/configmaps/n/new", []byte("small")) })
}

func TestEtcdsAlarmIsEndedOnceThereIsRoom(t *testing.T) {
	e := openSmall(t, dataDir(t))
	raise := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: uint64(e.server.MemberID()), Alarm: pb.AlarmType_NOSPACE}
	if _, err := e.server.Alarm(context.Background(), raise); err != nil {
		t.Fatal(err)
	}
	if err := tryWrite(t, e, "/k", []byte("v")); !errors.Is(err, store.ErrNoSpace) {
		t.Fatalf("a write with etcd's alarm: %v", err)
	}
	eventually(t, "the alarm stands", func() error { e.keeper.hurry(); return tryWrite(t, e, "/k", []byte("v")) })
}
