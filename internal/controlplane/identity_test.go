package controlplane

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

func openEngine(t *testing.T) store.Store {
	t.Helper()
	db, err := etcd.Open(t.Context(), etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// identityOf returns the identity of a new cluster's keys.
func identityOf(t *testing.T, cfg *config.Config) Identity {
	t.Helper()
	keys := openKeys(t)
	own, err := ownIdentity(keys, keys.ServiceAccount.Keys(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// stored returns the store's record.
func stored(t *testing.T, db store.Store, cfg *config.Config) Identity {
	t.Helper()
	record, _, err := readIdentity(t.Context(), db, identityKey(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func TestASecondServerNeedsTheClustersKeys(t *testing.T) {
	db, cfg := openEngine(t), config.Default()
	cfg.StoreEndpoints = []string{"http://127.0.0.1:2379"}
	first, second := identityOf(t, &cfg), identityOf(t, &cfg)
	for range 2 { // at the first start, and at a later one
		if replaced, err := agreeOnIdentity(t.Context(), db, &cfg, first, false); err != nil || len(replaced) > 0 {
			t.Fatal(replaced, err)
		}
	}
	_, err := agreeOnIdentity(t.Context(), db, &cfg, second, false)
	for _, want := range []string{"other keys", first.CAs[0], second.CAs[0], "knarr token create --server", "--etcd-prefix", "/knarr/identity"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
	other := cfg
	other.StorePrefix = "/other"
	if _, err := agreeOnIdentity(t.Context(), db, &other, second, false); err != nil {
		t.Errorf("another cluster in the same etcd: %v", err)
	}
	moved := first
	moved.ServiceCIDR = "10.99.0.0/16"
	if _, err := agreeOnIdentity(t.Context(), db, &cfg, moved, false); err == nil || !strings.Contains(err.Error(), `--service-cidr is "10.99.0.0/16" here and "10.43.0.0/16"`) {
		t.Errorf("another range: %v", err)
	}
	if !stored(t, db, &cfg).equal(first) {
		t.Error("a refused server has changed the record")
	}
}

func TestTheOnlyServerMayHaveNewKeys(t *testing.T) {
	db, cfg := openEngine(t), config.Default()
	first, second := identityOf(t, &cfg), identityOf(t, &cfg)
	second.ServiceCIDR = "10.99.0.0/16"
	if _, err := agreeOnIdentity(t.Context(), db, &cfg, first, true); err != nil {
		t.Fatal(err)
	}
	replaced, err := agreeOnIdentity(t.Context(), db, &cfg, second, true)
	if err != nil || len(replaced) != 2 {
		t.Errorf("%v, %v", replaced, err)
	}
	if !stored(t, db, &cfg).equal(second) {
		t.Error("the record does not follow the keys")
	}
}

func TestARotationKeepsBothKeys(t *testing.T) {
	db, cfg := openEngine(t), config.Default()
	old, next := identityOf(t, &cfg), identityOf(t, &cfg)
	if _, err := agreeOnIdentity(t.Context(), db, &cfg, old, false); err != nil {
		t.Fatal(err)
	}
	change := func(f func(*Identity)) {
		t.Helper()
		if err := UpdateIdentity(t.Context(), db, &cfg, f); err != nil {
			t.Fatal(err)
		}
	}
	change(func(i *Identity) { i.CAs = append(i.CAs, next.CAs...) })
	both := old
	both.ServiceAccountKeys = slices.Concat(old.ServiceAccountKeys, next.ServiceAccountKeys)
	for step, own := range []Identity{both, old, {CAs: next.CAs, ServiceAccountKeys: next.ServiceAccountKeys, ServiceCIDR: old.ServiceCIDR, ClusterDomain: old.ClusterDomain}} {
		if _, err := agreeOnIdentity(t.Context(), db, &cfg, own, false); err != nil {
			t.Errorf("step %d: %v", step, err)
		}
	}
	change(func(i *Identity) { i.CAs, i.ServiceAccountKeys = next.CAs, next.ServiceAccountKeys })
	if _, err := agreeOnIdentity(t.Context(), db, &cfg, old, false); err == nil {
		t.Error("the old keys are still accepted")
	}
}

// racing is a store in which another server writes before each of the first commits.
type racing struct {
	store.Store
	before []func()
}

func (r *racing) Commit(ctx context.Context, conditions []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	if len(r.before) > 0 {
		first := r.before[0]
		r.before = r.before[1:]
		first()
	}
	return r.Store.Commit(ctx, conditions, ops...)
}

func TestOfTwoFirstServersOneIsRefused(t *testing.T) {
	db, cfg := openEngine(t), config.Default()
	first, second := identityOf(t, &cfg), identityOf(t, &cfg)
	race := &racing{Store: db, before: []func(){func() {
		if _, err := agreeOnIdentity(t.Context(), db, &cfg, first, false); err != nil {
			t.Fatal(err)
		}
	}}}
	if _, err := agreeOnIdentity(t.Context(), race, &cfg, second, false); err == nil {
		t.Error("both servers are accepted")
	}
	if !stored(t, db, &cfg).equal(first) {
		t.Error("the record is not the first one's")
	}
}

func TestADamagedIdentityIsAnError(t *testing.T) {
	db, cfg := openEngine(t), config.Default()
	if _, err := db.Commit(t.Context(), nil, store.Op{Key: identityKey(&cfg), Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	if _, err := agreeOnIdentity(t.Context(), db, &cfg, identityOf(t, &cfg), true); err == nil || !strings.Contains(err.Error(), "/knarr/identity") {
		t.Errorf("got %v", err)
	}
}
