package etcd

import (
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/knarr-project/knarr/internal/network/nettest"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/storetest"
)

func TestEmbeddedEngineMeetsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		e, err := Open(t.Context(), Options{DataDir: dataDir(t), UnsafeNoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}

func TestOutsideEtcdMeetsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		r, err := Connect(t.Context(), RemoteOptions{Endpoints: []string{startEtcd(t)}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	})
}

// dataDir returns a folder that only its owner can read, as etcd demands.
func dataDir(t testing.TB) string { return filepath.Join(t.TempDir(), "etcd") }

// startEtcd runs a whole etcd with its network layer and returns its URL.
func startEtcd(t *testing.T) string {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = dataDir(t)
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 10, 50
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	client, peer := freeURL(t), freeURL(t)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd does not get ready")
	}
	return client.String()
}

func freeURL(t *testing.T) url.URL {
	t.Helper()
	return url.URL{Scheme: "http", Host: nettest.FreeAddress(t)}
}

func TestOpenIsQuickAndKeepsWrites(t *testing.T) {
	dir := dataDir(t)
	for i := range 3 {
		start := time.Now()
		e, err := Open(t.Context(), Options{DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		r, err := e.Range(t.Context(), "/k/", store.RangeOptions{})
		if err != nil || len(r.KVs) != i*100 {
			t.Fatalf("%d keys after %d runs, %v", len(r.KVs), i, err)
		}
		for j := range 100 {
			if _, err := e.Commit(t.Context(), nil, store.Op{Key: fmt.Sprintf("/k/%d/%d", i, j), Value: []byte("v")}); err != nil {
				t.Fatal(err)
			}
		}
		start = time.Now()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("run %d: open %s, close %s", i, took, time.Since(start))
	}
}

func TestAClosedEngineReturnsErrors(t *testing.T) {
	e, err := Open(t.Context(), Options{DataDir: dataDir(t), UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	w, err := e.Watch(t.Context(), "/", 0)
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	e.Close()
	if _, _, err := e.Get(t.Context(), "/k", 0); err == nil {
		t.Error("Get answers")
	}
	if _, err := e.Commit(t.Context(), nil, store.Op{Key: "/k"}); err == nil {
		t.Error("Commit answers")
	}
	if _, err := w.Next(t.Context()); err == nil {
		t.Error("a stream continues")
	}
	w.Close()
}
