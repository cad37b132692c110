package encryption

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/store"
)

// fakeKMS is a key management service on its own socket. It encrypts by inverting bits and
// prepending the key's name.
type fakeKMS struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	socket string
	server *grpc.Server

	mu       sync.Mutex // guards the following fields
	key      string
	keys     map[string]bool // known to Decrypt
	health   string
	version  string
	slow     bool // answers nothing until the caller gives up
	decrypts int
	err      error
}

func startKMS(t *testing.T) *fakeKMS {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // the names of t.TempDir are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &fakeKMS{socket: filepath.Join(dir, "s"), key: "key-1", keys: map[string]bool{"key-1": true}, health: "ok", version: "v2"}
	f.start(t)
	t.Cleanup(f.stop)
	return f
}

func (f *fakeKMS) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	f.server = server
	kmsapi.RegisterKeyManagementServiceServer(server, f)
	go func() { _ = server.Serve(listener) }()
}

func (f *fakeKMS) stop() { f.server.Stop() }

// set changes the service under its lock.
func (f *fakeKMS) set(change func(f *fakeKMS)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeKMS) rotate(key string) {
	f.set(func(f *fakeKMS) { f.key = key; f.keys[key] = true })
}

func (f *fakeKMS) wait(ctx context.Context) error {
	f.mu.Lock()
	slow, err := f.slow, f.err
	f.mu.Unlock()
	if slow {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (f *fakeKMS) Status(ctx context.Context, _ *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &kmsapi.StatusResponse{Version: f.version, Healthz: f.health, KeyId: f.key}, nil
}

func (f *fakeKMS) Encrypt(ctx context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &kmsapi.EncryptResponse{Ciphertext: turned(f.key, r.Plaintext), KeyId: f.key, Annotations: map[string][]byte{"by.kms.test": []byte("x")}}, nil
}

func (f *fakeKMS) Decrypt(ctx context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decrypts++
	if !f.keys[r.KeyId] || string(r.Annotations["by.kms.test"]) != "x" {
		return nil, status.Error(codes.NotFound, "no such key")
	}
	return &kmsapi.DecryptResponse{Plaintext: turned(r.KeyId, r.Ciphertext)}, nil
}

func turned(key string, text []byte) []byte {
	mask := sha256.Sum256([]byte(key))
	out := make([]byte, len(text))
	for i := range text {
		out[i] = text[i] ^ mask[i%len(mask)]
	}
	return out
}

// rulesOf returns a configuration with these plugins in order; the first encrypts Secrets.
func rulesOf(plugins ...*fakeKMS) string {
	text := "- resources: [secrets]\n  providers:\n"
	for _, f := range plugins {
		text += fmt.Sprintf("  - kms: {apiVersion: v2, name: %s, endpoint: 'unix://%s', timeout: 1s}\n", filepath.Base(filepath.Dir(f.socket)), f.socket)
	}
	return text + "  - identity: {}\n"
}

// sealed returns a store without a goroutine: the test calls step.
func sealed(t *testing.T, db store.Store, path, text string) *Store {
	t.Helper()
	write(t, path, text)
	s, err := open(t.Context(), db, path, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	return s
}

const oneSecret = "/registry/secrets/default/one"

func commit(s store.Store, key, value string) error {
	_, err := s.Commit(context.Background(), nil, store.Op{Key: key, Value: []byte(value)})
	return err
}

func mustCommit(t *testing.T, s store.Store, key, value string) {
	t.Helper()
	if err := commit(s, key, value); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, s store.Store, key, want string) {
	t.Helper()
	kv, _, err := s.Get(t.Context(), key, 0)
	if err != nil || kv == nil || string(kv.Value) != want {
		t.Fatalf("%s: %+v %v, want %q", key, kv, err, want)
	}
}

func TestStoreContractHoldsWithAPlugin(t *testing.T) {
	f := startKMS(t)
	db := engine(t)
	defer func() { _ = db.Close() }()
	s := sealed(t, db, filepath.Join(t.TempDir(), "config"), rulesOf(f))
	mustCommit(t, s, oneSecret, "hidden")
	raw, _, err := db.Get(t.Context(), oneSecret, 0)
	if err != nil || !strings.HasPrefix(string(raw.Value), "k8s:enc:kms:v2:kms") || strings.Contains(string(raw.Value), "hidden") {
		t.Fatalf("in the store: %q %v", raw.Value, err)
	}
	mustRead(t, s, oneSecret, "hidden")
	// Another server, or this one after a restart, asks the plugin once for all values of a seed.
	mustCommit(t, s, oneSecret+"-more", "also hidden")
	again := sealed(t, db, filepath.Join(t.TempDir(), "config"), rulesOf(f))
	mustRead(t, again, oneSecret, "hidden")
	mustRead(t, again, oneSecret+"-more", "also hidden")
	if f.decrypts != 1 {
		t.Errorf("the plugin was asked %d times", f.decrypts)
	}
	if err := again.Health(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNewPluginKeyMakesValuesStale(t *testing.T) {
	f := startKMS(t)
	db := engine(t)
	defer func() { _ = db.Close() }()
	s := sealed(t, db, filepath.Join(t.TempDir(), "config"), rulesOf(f))
	mustCommit(t, s, oneSecret, "hidden")
	if stale, err := s.NeedsReencryption(t.Context(), oneSecret); stale || err != nil {
		t.Fatalf("at first: stale %v %v", stale, err)
	}
	before := told(t, s)
	f.rotate("key-2")
	s.step(t.Context(), false, time.Now().Add(statusInterval))
	mustRead(t, s, oneSecret, "hidden")
	if stale, err := s.NeedsReencryption(t.Context(), oneSecret); !stale || err != nil {
		t.Fatalf("after the rotation: stale %v %v", stale, err)
	}
	mustCommit(t, s, oneSecret, "hidden")
	if stale, err := s.NeedsReencryption(t.Context(), oneSecret); stale || err != nil {
		t.Fatalf("written again: stale %v %v", stale, err)
	}
	for name := range map[string]bool{
		"apiserver_envelope_encryption_key_id_hash_total": true, "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds": true,
		"apiserver_envelope_encryption_kms_operations_latency_seconds": true, "apiserver_envelope_encryption_dek_source_cache_size": true,
		"apiserver_storage_transformation_operations_total": true, "apiserver_storage_transformation_duration_seconds": true,
	} {
		if before[name] == 0 {
			t.Errorf("%s is not told", name)
		}
	}
	if name := "apiserver_envelope_encryption_key_id_hash_total"; told(t, s)[name] <= before[name] {
		t.Errorf("the use of the new key is not counted: %v", told(t, s)[name])
	}
	// The old key is no longer needed.
	f.set(func(f *fakeKMS) { delete(f.keys, "key-1") })
	mustRead(t, sealed(t, db, filepath.Join(t.TempDir(), "config"), rulesOf(f)), oneSecret, "hidden")
}

func TestPluginThatDoesNotAnswer(t *testing.T) {
	for name, break_ := range map[string]struct {
		off, on func(t *testing.T, f *fakeKMS)
		health  string
	}{
		"is down": {
			func(_ *testing.T, f *fakeKMS) { f.stop() }, func(t *testing.T, f *fakeKMS) { f.start(t) }, "rpc error: code = ",
		},
		"is slow": {
			func(_ *testing.T, f *fakeKMS) { f.set(func(f *fakeKMS) { f.slow = true }) },
			func(_ *testing.T, f *fakeKMS) { f.set(func(f *fakeKMS) { f.slow = false }) }, "rpc error: code = DeadlineExceeded",
		},
		"has a failure of its own": {
			func(_ *testing.T, f *fakeKMS) {
				f.set(func(f *fakeKMS) { f.err = status.Error(codes.Unknown, "vault sealed") })
			},
			func(_ *testing.T, f *fakeKMS) { f.set(func(f *fakeKMS) { f.err = nil }) }, "vault sealed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := startKMS(t)
			db := engine(t)
			defer func() { _ = db.Close() }()
			first := sealed(t, db, filepath.Join(t.TempDir(), "config"), rulesOf(f))
			mustCommit(t, first, oneSecret, "hidden")
			break_.off(t, f)
			// With a seed, reads and writes continue.
			mustCommit(t, first, oneSecret, "hidden still")
			mustRead(t, first, oneSecret, "hidden still")
			// Without a seed, writes fail, and encrypted values are unavailable instead of being
			// returned encrypted.
			second := sealed(t, db, filepath.Join(t.TempDir(), "config"), rulesOf(f))
			if err := commit(second, oneSecret, "x"); err == nil {
				t.Error("a value was written without a plugin")
			}
			if _, err := second.Range(t.Context(), "/registry/secrets/", store.RangeOptions{}); err == nil || !strings.Contains(err.Error(), store.ErrUnavailable.Error()) {
				t.Errorf("a list: %v", err)
			}
			if err := second.Health(t.Context()); err == nil || !strings.Contains(err.Error(), break_.health) {
				t.Errorf("health: %v", err)
			}
			mustCommit(t, second, "/registry/pods/default/one", "others are none of its business")
			break_.on(t, f)
			// It is asked soon, because it is broken; the connection may need some attempts.
			for range 20 {
				if second.step(t.Context(), false, time.Now()); second.rules.Load().kms[0].err == nil {
					break
				}
			}
			if err := second.Health(t.Context()); err != nil {
				t.Errorf("health afterwards: %v", err)
			}
			mustRead(t, second, oneSecret, "hidden still")
			mustCommit(t, second, oneSecret, "hidden again")
		})
	}
}

func TestCachedHealthCheckReportsOnlyTheCause(t *testing.T) {
	f := startKMS(t)
	db := engine(t)
	defer func() { _ = db.Close() }()
	p := sealed(t, db, filepath.Join(t.TempDir(), "config"), rulesOf(f)).rules.Load().kms[0]
	f.set(func(f *fakeKMS) { f.err = status.Error(codes.FailedPrecondition, "key disabled") })
	const why = "rpc error: code = FailedPrecondition desc = key disabled"
	for _, step := range []struct {
		asked time.Time
		want  string
	}{
		{time.Time{}, "failed to perform status section of the healthz check for KMS Provider " + p.config.Name + ", error: " + why},
		{time.Now().Add(time.Hour), why},
	} {
		p.mu.Lock()
		p.asked = step.asked
		p.mu.Unlock()
		if err := p.health(t.Context()); err == nil || err.Error() != step.want {
			t.Errorf("got %v, want %s", err, step.want)
		}
	}
}

func TestPluginStatusIsValidated(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(f *fakeKMS)
		want   string
	}{
		"not healthy":     {func(f *fakeKMS) { f.health = "sealed" }, " is not healthy, error: got unexpected healthz status: sealed"},
		"another version": {func(f *fakeKMS) { f.version = "v1" }, "expected KMSv2 API version v2, got v1"},
		"no key":          {func(f *fakeKMS) { f.key = "" }, "keyID is empty"},
		"a long key":      {func(f *fakeKMS) { f.key = strings.Repeat("k", 2000) }, "exceeds the max size"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startKMS(t)
			f.set(tc.change)
			db := engine(t)
			defer func() { _ = db.Close() }()
			s := sealed(t, db, filepath.Join(t.TempDir(), "config"), rulesOf(f))
			if err := s.Health(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
			if err := commit(s, oneSecret, "x"); err == nil || !temporary(err) {
				t.Errorf("it encrypts all the same: %v", err)
			}
		})
	}
}

func TestFailedReloadIsRetriedAndLeavesNoConnection(t *testing.T) {
	old, late := startKMS(t), startKMS(t)
	late.set(func(f *fakeKMS) { f.err = status.Error(codes.Unavailable, "starting") })
	db := engine(t)
	defer func() { _ = db.Close() }()
	path := filepath.Join(t.TempDir(), "config")
	s := sealed(t, db, path, rulesOf(old))
	mustCommit(t, s, oneSecret, "hidden")
	before := s.rules.Load()
	write(t, path, rulesOf(late, old))
	now := time.Now()
	for range 2 {
		s.step(t.Context(), true, now)
		if s.rules.Load() != before {
			t.Fatal("a configuration counts whose plugin does not answer")
		}
	}
	late.set(func(f *fakeKMS) { f.err = nil })
	s.step(t.Context(), true, now) // the file is the same as before
	if s.rules.Load() == before {
		t.Fatal("the reload is not tried again")
	}
	mustRead(t, s, oneSecret, "hidden")
	mustCommit(t, s, oneSecret, "hidden by the late one")

	write(t, path, rulesOf(late))
	kept := s.rules.Load().kms[0]
	s.step(t.Context(), true, now)
	if got := s.rules.Load().kms; len(got) != 1 || got[0] != kept {
		t.Errorf("the plugin that did not change is another one now: %v", got)
	}
	if len(s.retired) != 1 || s.retired[0].plugin != before.kms[0] {
		t.Fatalf("to be closed: %v", s.retired)
	}
	retired := s.retired[0].plugin
	s.step(t.Context(), true, time.Now().Add(retireAfter))
	if len(s.retired) != 0 {
		t.Error("connections of an old configuration stay open")
	}
	closed := func() bool { _, err := retired.service.Status(t.Context()); return status.Code(err) == codes.Canceled }
	// The library closes it in the background.
	for deadline := time.Now().Add(time.Minute); !closed(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the connection of a plugin that is not used any more stays open")
		}
	}
	mustRead(t, s, oneSecret, "hidden by the late one")
}

// textSchema keeps values as they are.
func textSchema(prefix string) cache.Schema {
	return cache.Schema{
		Prefix: prefix,
		Decode: func(stored []byte, _ int64) (runtime.Object, error) {
			return &corev1.ConfigMap{Data: map[string]string{"text": string(stored)}}, nil
		},
		Header: func(runtime.Object) cache.Header { return cache.Header{Namespace: "default", Name: "one"} },
	}
}

// textOf returns the value of the kind's only object.
func textOf(kind *cache.Kind) (text string) {
	kind.Snapshot().Ascend("", "", func(e *cache.Entry) bool {
		if obj, err := e.Object(); err == nil {
			text = obj.(*corev1.ConfigMap).Data["text"]
		}
		return true
	})
	return text
}

// A value that a stream could not decrypt becomes readable without another write.
func TestCacheGetsUndecryptedValuesOnceThePluginAnswers(t *testing.T) {
	f := startKMS(t)
	db := engine(t)
	defer func() { _ = db.Close() }()
	writer, reader := sealed(t, db, filepath.Join(t.TempDir(), "config"), rulesOf(f)), sealed(t, db, filepath.Join(t.TempDir(), "config"), rulesOf(f))
	mustCommit(t, writer, oneSecret, "old")
	c := cache.New(reader)
	defer c.Close()
	reader.OnRepair(c.Relist)
	schema := textSchema("/registry/secrets")
	kind, err := c.Kind(schema)
	if err != nil {
		t.Fatal(err)
	}
	f.rotate("key-2")
	writer.step(t.Context(), false, time.Now().Add(statusInterval))
	f.set(func(f *fakeKMS) { f.err = status.Error(codes.Unavailable, "away") })
	mustCommit(t, writer, oneSecret, "new") // with a seed that the reader does not have
	revision, err := db.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := kind.WaitFor(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	if got := textOf(kind); !strings.HasPrefix(got, "k8s:enc:") || !reader.isBroken() {
		t.Fatalf("without the plugin: %q", got)
	}
	reader.retryBroken(t.Context()) // the plugin still does not answer
	if !reader.isBroken() {
		t.Fatal("forgotten")
	}
	f.set(func(f *fakeKMS) { f.err = nil })
	reader.retryBroken(t.Context())
	if got := textOf(kind); got != "new" || reader.isBroken() {
		t.Errorf("with the plugin: %q", got)
	}
}

// A store beside has the same keys, and its unreadable values are repaired, too.
func TestStoreBesideHasTheSameKeys(t *testing.T) {
	f := startKMS(t)
	db, other := engine(t), engine(t)
	s := sealed(t, db, filepath.Join(t.TempDir(), "config"), rulesOf(f))
	beside := s.Beside(other)
	mustCommit(t, beside, oneSecret, "hidden")
	mustRead(t, beside, oneSecret, "hidden")
	if raw, _, err := other.Get(t.Context(), oneSecret, 0); err != nil || raw == nil || !strings.HasPrefix(string(raw.Value), "k8s:enc:kms:v2:") {
		t.Errorf("it lies there as %+v, %v", raw, err)
	}
	if kv, _, err := s.Get(t.Context(), oneSecret, 0); err != nil || kv != nil {
		t.Errorf("the first store has it: %+v, %v", kv, err)
	}
	var again []string
	s.OnRepair(func(_ context.Context, prefix string) error { again = append(again, prefix); return nil })
	beside.addBroken(oneSecret, status.Error(codes.Unavailable, "away"))
	if s.retryBroken(t.Context()); s.isBroken() || !slices.Equal(again, []string{"/registry/secrets"}) {
		t.Errorf("told again: %v", again)
	}
	// The keys end with the first store, and only with that one.
	if err := beside.Close(); err != nil {
		t.Error(err)
	}
	mustCommit(t, s, oneSecret, "still")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// told returns the number of series per family of metrics.
func told(t *testing.T, s *Store) map[string]int {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, f := range families {
		all[f.GetName()] = len(f.Metric)
	}
	return all
}
