package encryption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
	"github.com/knarr-project/knarr/internal/store/storetest"
)

const (
	keyA = "c2VjcmV0IGlzIHNlY3VyZSwgb3IgaXMgaXQ/AAAAAAA=" // 32 bytes
	keyB = "dGhpcyBpcyBhbm90aGVyIHNlY3JldCBvZiAzMiBieXQ="
	head = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n"
)

func engine(t *testing.T) store.Store {
	t.Helper()
	db, err := etcd.Open(t.Context(), etcd.Options{DataDir: t.TempDir(), UnsafeNoSync: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(head+text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func wrap(t *testing.T, db store.Store, text string) *Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, text)
	s, err := Wrap(t.Context(), db, path, false, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func provider(kind, name, key string) string {
	return fmt.Sprintf("  - %s: {keys: [{name: %s, secret: %s}]}\n", kind, name, key)
}

func TestStoreContractHoldsWithEncryption(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		return wrap(t, engine(t), "- resources: ['*.*']\n  providers:\n"+provider("secretbox", "a", keyA))
	})
}

func TestValuesAreStoredEncryptedAndRotated(t *testing.T) {
	for _, kind := range []string{"aescbc", "aesgcm", "secretbox"} {
		t.Run(kind, func(t *testing.T) {
			db := engine(t)
			defer func() { _ = db.Close() }()
			ctx := t.Context()
			const key = "/registry/secrets/default/one"
			put := func(s store.Store, key, value string) {
				t.Helper()
				kv, _, err := s.Get(ctx, key, 0)
				if err != nil {
					t.Fatal(err)
				}
				c := store.Condition{Key: key}
				if kv != nil {
					c.ModRevision = kv.ModRevision
				}
				if res, err := s.Commit(ctx, []store.Condition{c}, store.Op{Key: key, Value: []byte(value)}); err != nil || !res.Succeeded {
					t.Fatal(res, err)
				}
			}
			raw := func(key string) string {
				kv, _, err := db.Get(ctx, key, 0)
				if err != nil {
					t.Fatal(err)
				}
				return string(kv.Value)
			}
			read := func(s store.Store, key string) string {
				kv, _, err := s.Get(ctx, key, 0)
				if err != nil {
					t.Fatal(err)
				}
				return string(kv.Value)
			}
			put(db, key, "from before")
			first := wrap(t, db, "- resources: [secrets]\n  providers:\n"+provider(kind, "a", keyA)+"  - identity: {}\n")
			if got := read(first, key); got != "from before" {
				t.Errorf("what was there before: %q", got)
			}
			if stale, err := first.NeedsReencryption(ctx, key); !stale || err != nil {
				t.Errorf("a plain value is not stale: %v", err)
			}
			put(first, key, "hidden")
			put(first, "/registry/configmaps/default/one", "plain")
			if got := raw(key); !strings.HasPrefix(got, "k8s:enc:"+kind+":v1:a:") || strings.Contains(got, "hidden") {
				t.Errorf("in the store: %q", got)
			}
			if got := raw("/registry/configmaps/default/one"); got != "plain" {
				t.Errorf("another resource: %q", got)
			}
			second := wrap(t, db, "- resources: [secrets]\n  providers:\n"+provider(kind, "b", keyB)+provider(kind, "a", keyA))
			if stale, err := second.NeedsReencryption(ctx, key); !stale || err != nil || read(second, key) != "hidden" {
				t.Errorf("after the rotation: stale %v, %q, %v", stale, read(second, key), err)
			}
			put(second, key, "hidden")
			if stale, err := second.NeedsReencryption(ctx, key); stale || err != nil || !strings.HasPrefix(raw(key), "k8s:enc:"+kind+":v1:b:") {
				t.Errorf("written again: stale %v, %q, %v", stale, raw(key), err)
			}
			// A value that is moved to another key cannot be decrypted.
			moved := raw(key)
			put(db, "/registry/secrets/default/two", moved)
			if got := read(second, "/registry/secrets/default/two"); kind == "aesgcm" && got != moved {
				t.Errorf("a value of another object is believed: %q", got)
			}
		})
	}
}

func TestValueIsBoundToItsKey(t *testing.T) {
	db := engine(t)
	defer func() { _ = db.Close() }()
	const rules = "- resources: [secrets]\n  providers:\n"
	const key = "/registry/secrets/default/one"
	elsewhere := wrap(t, store.Reroot(db, "/registry", "/elsewhere"), rules+provider("aesgcm", "a", keyA))
	if _, err := elsewhere.Commit(t.Context(), nil, store.Op{Key: key, Value: []byte("hidden")}); err != nil {
		t.Fatal(err)
	}
	if kv, _, err := elsewhere.Get(t.Context(), key, 0); err != nil || string(kv.Value) != "hidden" {
		t.Errorf("read as %v, %v", kv, err)
	}
	stored, _, err := db.Get(t.Context(), "/elsewhere/secrets/default/one", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Commit(t.Context(), nil, store.Op{Key: key, Value: stored.Value}); err != nil {
		t.Fatal(err)
	}
	if kv, _, err := wrap(t, db, rules+provider("aesgcm", "a", keyA)).Get(t.Context(), key, 0); err != nil || string(kv.Value) != string(stored.Value) {
		t.Errorf("a value of another root is believed: %v, %v", kv, err)
	}
}

func TestChangedFileIsLoadedAndInvalidOneIgnored(t *testing.T) {
	db := engine(t)
	defer func() { _ = db.Close() }()
	path := filepath.Join(t.TempDir(), "config")
	s := sealed(t, db, path, "- resources: [secrets]\n  providers:\n  - identity: {}\n")
	for _, text := range []string{provider("aescbc", "a", keyA), "  - aescbc: {keys: []}\n"} {
		write(t, path, "- resources: [secrets]\n  providers:\n"+text)
		s.step(t.Context(), true, time.Now())
	}
	mustCommit(t, s, oneSecret, "x")
	if kv, _, err := db.Get(t.Context(), oneSecret, 0); err != nil || !encrypted(kv.Value) {
		t.Errorf("%s %v", kv.Value, err)
	}
}

func TestMaskedRuleIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ rules, masked, by string }{
		"all of a kind, behind everything":             {"*.*|secrets", "secrets", "*.*"},
		"a kind of a group, behind its group":          {"*.apps|deployments.apps", "deployments.apps", "*.apps"},
		"a kind of the core, behind the core":          {"*.|secrets", "secrets", "*."},
		"a group behind everything":                    {"secrets|*.*|*.apps", "*.apps", "*.*"},
		"a group behind itself":                        {"*.apps|*.apps", "*.apps", "*.apps"},
		"one of several, behind one of several":        {"*.apps,*.batch|pods,jobs.batch", "jobs.batch", "*.batch"},
		"everything behind a kind and a group is fine": {"secrets|deployments.apps|*.apps|*.|*.*", "", ""},
		"a kind twice is fine":                         {"secrets|secrets", "", ""},
		"a kind behind another group is fine":          {"*.batch|deployments.apps", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := head
			for rule := range strings.SplitSeq(c.rules, "|") {
				text += "- resources: ['" + strings.ReplaceAll(rule, ",", "', '") + "']\n  providers: [{identity: {}}]\n"
			}
			_, err := load(t.Context(), []byte(text), nil)
			want := fmt.Sprintf("resource %q is masked by earlier rule %q", c.masked, c.by)
			if (err != nil) != (c.masked != "") || err != nil && !strings.HasSuffix(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// TestResourceMayHaveTwoRules: as upstream, the providers of both rules are joined; the first one
// encrypts, and the second one's values can still be read.
func TestResourceMayHaveTwoRules(t *testing.T) {
	db := engine(t)
	const key = "/registry/secrets/a/b"
	before := wrap(t, db, "- resources: [secrets]\n  providers:\n"+provider("aescbc", "a", keyA))
	if _, err := before.Commit(t.Context(), nil, store.Op{Key: key, Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	s := wrap(t, db, "- resources: [secrets]\n  providers:\n"+provider("aescbc", "b", keyB)+"- resources: [configmaps, secrets]\n  providers:\n"+provider("aescbc", "a", keyA))
	if kv, _, err := s.Get(t.Context(), key, 0); err != nil || string(kv.Value) != "x" {
		t.Fatalf("what the second rule encrypts is read as %v, %v", kv, err)
	}
	if _, err := s.Commit(t.Context(), nil, store.Op{Key: key, Value: []byte("y")}); err != nil {
		t.Fatal(err)
	}
	if kv, _, err := db.Get(t.Context(), key, 0); err != nil || !strings.HasPrefix(string(kv.Value), "k8s:enc:aescbc:v1:b:") {
		t.Errorf("it is not written by the first rule: %q, %v", kv.Value, err)
	}
}

func TestCommitDoesNotChangeTheCallersOperations(t *testing.T) {
	s := wrap(t, engine(t), "- resources: [secrets]\n  providers:\n"+provider("aescbc", "a", keyA))
	defer func() { _ = s.Close() }()
	ops := []store.Op{{Key: "/registry/secrets/a/b", Value: []byte("x")}}
	for range 2 {
		if _, err := s.Commit(t.Context(), nil, ops...); err != nil {
			t.Fatal(err)
		}
	}
	if kv, _, err := s.Get(t.Context(), ops[0].Key, 0); err != nil || string(kv.Value) != "x" {
		t.Errorf("%q %v", kv.Value, err)
	}
}

func TestRulesAreFoundByKey(t *testing.T) {
	s := wrap(t, engine(t), "- resources: [secrets, 'widgets.example.com', '*.apps']\n  providers:\n"+provider("aescbc", "a", keyA)+"- resources: ['*.']\n  providers:\n  - identity: {}\n")
	defer func() { _ = s.Close() }()
	for key, want := range map[string]int{
		"/registry/secrets/a/b": 0, "/registry/example.com/widgets/a/b": 0, "/registry/deployments/a/b": 0, "/registry/pods/a/b": 1,
		"/registry/example.com/others/a/b": -1, "/registry/ranges/x": -1, "x": -1,
	} {
		got := -1
		if r := s.ruleOf(key); r != nil {
			got = 0
			if r.resource.Group == "" && r.resource.Resource == "*" {
				got = 1
			}
		}
		if got != want {
			t.Errorf("%s is of rule %d, want %d", key, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "- resources: [secrets]\n  providers:\n" + provider("aescbc", "a", keyA)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if config, err := parse(data); err == nil {
			for i := range config.Resources {
				for j := range config.Resources[i].Providers {
					config.Resources[i].Providers[j].KMS = nil // no connections in this test
				}
			}
			_, _ = build(t.Context(), config, nil)
		}
	})
}

// falls panics on every value.
type falls struct{ value.Transformer }

func (falls) TransformFromStorage(context.Context, []byte, value.Context) ([]byte, bool, error) {
	panic("fallen")
}

func TestPanicOfATransformerIsLoggedWithItsStack(t *testing.T) {
	var text strings.Builder
	s := &Store{keyring: &keyring{log: slog.New(slog.NewTextHandler(&text, nil)), builtin: map[string]schema.GroupResource{"/registry/secrets": {Resource: "secrets"}}}}
	s.rules.Store(&rules{list: []rule{{resource: schema.GroupResource{Resource: "secrets"}, Transformer: falls{}}}})
	stored := []byte("k8s:enc:aescbc:v1:a:")
	kv := &store.KeyValue{Key: "/registry/secrets/default/one", Value: slices.Clone(stored)}
	if err := s.decrypt(t.Context(), kv); err != nil || !bytes.Equal(kv.Value, stored) {
		t.Errorf("%q %v", kv.Value, err)
	}
	if !strings.Contains(text.String(), "falls.TransformFromStorage") || !strings.Contains(text.String(), `err="the value cannot be read: fallen"`) {
		t.Error(text.String())
	}
}

// halfBroken is a registry in which the metrics of one library fail.
type halfBroken struct{}

func (halfBroken) Gather() ([]*dto.MetricFamily, error) {
	const ours, theirs = "apiserver_storage_transformation_operations_total", "rest_client_requests_total"
	counter := []*dto.Metric{{Counter: &dto.Counter{Value: new(float64)}}}
	return []*dto.MetricFamily{
		{Name: new(ours), Type: dto.MetricType_COUNTER.Enum(), Metric: counter}, {Name: new(theirs), Type: dto.MetricType_COUNTER.Enum(), Metric: counter},
	}, errors.New("a library can not count")
}

func TestMetricsAreCollectedDespiteErrorsOfOtherLibraries(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(libraryMetrics{halfBroken{}})
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "apiserver_storage_transformation_operations_total" {
		t.Errorf("%v %v", families, err)
	}
}

// FuzzStored reads arbitrary stored values: each is one that a key has encrypted, or stays as it
// is.
func FuzzStored(f *testing.F) {
	config := func(kinds ...string) string {
		text := "- resources: [secrets]\n  providers:\n"
		for _, kind := range kinds {
			text += provider(kind, "a", keyA)
		}
		return head + text
	}
	const key = "/registry/secrets/default/one"
	kinds := []string{"secretbox", "aesgcm", "aescbc"}
	all, err := load(f.Context(), []byte(config(kinds...)), nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, kind := range kinds {
		writer, err := load(f.Context(), []byte(config(kind)), nil)
		if err != nil {
			f.Fatal(err)
		}
		stored, err := writer.list[0].TransformToStorage(f.Context(), []byte("hidden"), value.DefaultContext(key))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(stored)
		f.Add(stored[:len(stored)-1])
		f.Add([]byte("k8s:enc:" + kind + ":v1:a:"))
	}
	f.Add([]byte("k8s:enc:kms:v2:a:\x0a\xff"))
	f.Add([]byte("k8s:enc:"))
	s := &Store{keyring: &keyring{log: slog.New(slog.DiscardHandler), builtin: map[string]schema.GroupResource{"/registry/secrets": {Resource: "secrets"}}}}
	s.broken, s.wake = map[string]brokenValue{}, make(chan struct{}, 1)
	s.rules.Store(all)
	f.Fuzz(func(t *testing.T, stored []byte) {
		kv := &store.KeyValue{Key: key, Value: slices.Clone(stored)}
		if err := s.decrypt(t.Context(), kv); err != nil {
			t.Errorf("others wait for what can never be read: %v", err)
		}
		if !encrypted(stored) && !bytes.Equal(kv.Value, stored) {
			t.Errorf("%q is not encrypted, and is read as %q", stored, kv.Value)
		}
	})
}
