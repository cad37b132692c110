package rotation

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/store"
)

// fakeKeys is a server's encryption configuration in memory.
type fakeKeys struct {
	config []byte
	err    error
}

func (f *fakeKeys) Configuration() ([]byte, error) { return f.config, f.err }

func (f *fakeKeys) Use(_ context.Context, config []byte) error {
	if f.err == nil {
		f.config = config
	}
	return f.err
}

const oldSecret = "c2VjcmV0IGlzIHNlY3VyZSwgb3IgaXMgaXQ/AAAAAAA="

const oldConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: first, secret: ` + oldSecret + `}]}
  - identity: {}
- resources: [configmaps]
  providers:
  - secretbox: {keys: [{name: box, secret: ` + oldSecret + `}]}
- resources: [pods]
  providers:
  - identity: {}
`

// describe returns the names of the keys of each provider: "aesgcm=new,first identity|...".
func describe(t *testing.T, config []byte) string {
	t.Helper()
	var c apiserverconfig.EncryptionConfiguration
	if err := yaml.UnmarshalStrict(config, &c); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range c.Resources {
		var providers []string
		for _, p := range r.Providers {
			var kind string
			var keys []apiserverconfig.Key
			switch {
			case p.AESGCM != nil:
				kind, keys = "aesgcm", p.AESGCM.Keys
			case p.Secretbox != nil:
				kind, keys = "secretbox", p.Secretbox.Keys
			default:
				kind = "identity"
			}
			var names []string
			for _, k := range keys {
				name, _, _ := strings.Cut(k.Name, "-")
				names = append(names, name)
			}
			providers = append(providers, strings.TrimSuffix(kind+"="+strings.Join(names, ","), "="))
		}
		out = append(out, strings.Join(providers, " "))
	}
	return strings.Join(out, "|")
}

func TestTheEncryptionKeyIsReplacedOnAllServers(t *testing.T) {
	db, dir := newStore(t), t.TempDir()
	a := server(t, db, "a", dir)
	b := server(t, db, "b", joined(t, dir))
	keysA, keysB := &fakeKeys{config: []byte(oldConfig)}, &fakeKeys{config: []byte(oldConfig)}
	a.Encryption, b.Encryption = keysA, keysB
	for _, m := range []*Manager{a, b} {
		if err := m.report(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		step Step
		want string
	}{
		{Start, "aesgcm=first,knarr identity|secretbox=box,knarr|identity"},
		{Abort, "aesgcm=first identity|secretbox=box|identity"},
		{Start, "aesgcm=first,knarr identity|secretbox=box,knarr|identity"},
		{Switch, "aesgcm=knarr,first identity|secretbox=knarr,box|identity"},
		{Finish, "aesgcm=knarr identity|secretbox=knarr|identity"},
	} {
		r, err := a.Advance(t.Context(), Encryption, tt.step)
		if err != nil {
			t.Fatalf("%s: %v", tt.step, err)
		}
		reports, err := b.Reports(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if lag := Lagging(r, reports, nil); len(lag) != 2 {
			t.Errorf("%s: before any server has told, %v lag", tt.step, lag)
		}
		// A server that starts again applies the step too, and again.
		for range 2 {
			if err := b.Apply(t.Context()); err != nil {
				t.Fatalf("%s: %v", tt.step, err)
			}
		}
		for name, keys := range map[string]*fakeKeys{"a": keysA, "b": keysB} {
			if got := describe(t, keys.config); got != tt.want {
				t.Errorf("%s: server %s has %s, wanted %s", tt.step, name, got, tt.want)
			}
		}
		if string(keysA.config) != string(keysB.config) {
			t.Errorf("%s: the servers' keys differ", tt.step)
		}
		for _, m := range []*Manager{a, b} {
			if err := m.report(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if reports, err = a.Reports(t.Context()); err != nil || len(Lagging(r, reports, nil)) > 0 {
			t.Errorf("%s: %v lag, %v", tt.step, Lagging(r, reports, nil), err)
		}
	}
	kv, _, err := db.Get(t.Context(), recordPrefix+Encryption, 0)
	if err != nil || strings.Contains(string(kv.Value), oldSecret) {
		t.Errorf("the store reveals a key: %v", err)
	}

	// A store from before two rotations has values of keys that are removed.
	for _, step := range steps {
		if _, err := a.Advance(t.Context(), Encryption, step); err != nil {
			t.Fatal(err)
		}
	}
	restored := server(t, newStore(t), "a", dir)
	restored.Encryption = keysA
	if err := restored.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := describe(t, keysA.config), "aesgcm=knarr,knarr,first identity|secretbox=knarr,knarr,box|identity"; got != want {
		t.Errorf("with an older store: %s, wanted %s", got, want)
	}
	if phase := phaseOf(t, restored, Encryption); phase != Signing {
		t.Errorf("phase %q", phase)
	}
	if _, err := restored.Advance(t.Context(), Encryption, Finish); err != nil {
		t.Fatal(err)
	}
	if got, want := describe(t, keysA.config), "aesgcm=knarr identity|secretbox=knarr|identity"; got != want {
		t.Errorf("afterwards: %s", got)
	}
}

func TestTheConfigurationMayBeChangedBetweenRotations(t *testing.T) {
	m := server(t, newStore(t), "a", t.TempDir())
	keys := &fakeKeys{config: []byte(oldConfig)}
	m.Encryption = keys
	for _, step := range steps {
		if _, err := m.Advance(t.Context(), Encryption, step); err != nil {
			t.Fatal(err)
		}
	}
	edited := strings.Replace(string(keys.config), "- configmaps", "- configmaps\n  - leases.coordination.k8s.io", 1)
	keys.config = []byte(edited)
	if err := m.Apply(t.Context()); err != nil || string(keys.config) != edited {
		t.Errorf("the change is lost: %v", err)
	}
	if _, err := m.Advance(t.Context(), Encryption, Start); err != nil || !strings.Contains(string(keys.config), "leases.coordination") {
		t.Errorf("the change is lost in the next rotation: %v", err)
	}
}

func TestKeysThatKnarrCannotReplaceAreRefused(t *testing.T) {
	kms := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n" +
		"  - kms: {apiVersion: v2, name: vault, endpoint: unix:///x}\n"
	for _, tt := range []struct {
		title    string
		own      EncryptionKeys
		other    *Report
		contains string
	}{
		{"nothing is encrypted", nil, nil, "encrypts nothing"},
		{"a KMS plugin has the key", &fakeKeys{config: []byte(kms)}, nil, "in its own system"},
		{"another server has another configuration", &fakeKeys{config: []byte(oldConfig)}, &Report{Server: "b", Encryption: "1234"}, "server b has another encryption configuration"},
		{"another server's flag names a file", &fakeKeys{config: []byte(oldConfig)}, &Report{Server: "b", Unmanaged: "the flag names a file"}, "server b: the flag names a file"},
		{"another server is older", &fakeKeys{config: []byte(oldConfig)}, &Report{Server: "b"}, "server b has not told"},
	} {
		t.Run(tt.title, func(t *testing.T) {
			db, dir := newStore(t), t.TempDir()
			m := server(t, db, "a", dir)
			m.Encryption = tt.own
			if tt.other != nil {
				writeReport(t, db, tt.other)
			}
			_, err := m.Advance(t.Context(), Encryption, Start)
			if err == nil || !strings.Contains(err.Error(), tt.contains) {
				t.Errorf("got %v", err)
			}
			if records, err := m.Records(t.Context()); err != nil || len(records) > 0 {
				t.Errorf("a record is there: %v", err)
			}
		})
	}
}

func writeReport(t *testing.T, db store.Store, r *Report) {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Commit(t.Context(), nil, store.Op{Key: reportPrefix + r.Server, Value: data}); err != nil {
		t.Fatal(err)
	}
}
