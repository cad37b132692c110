package rotation

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

func newStore(t *testing.T) store.Store {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	db, err := etcd.Open(context.WithoutCancel(t.Context()), etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), UnsafeNoSync: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// server opens a server's folder, as a process does at its start.
func server(t *testing.T, db store.Store, name, dir string) *Manager {
	t.Helper()
	keys, err := pki.Open(pki.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return &Manager{
		Store: db, Keys: keys, Dir: dir, Server: name, Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Inventory: func() []pki.Entry { entries, _ := pki.Inventory(dir); return entries },
	}
}

// joined copies the keys of a server's folder, as joining does.
func joined(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	copyFiles(t, from, to)
	return to
}

func phaseOf(t *testing.T, m *Manager, name string) Phase {
	t.Helper()
	records, err := m.Records(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if records[name] == nil {
		return Settled
	}
	return records[name].Phase
}

var steps = []Step{Start, Switch, Finish}

func TestAllServersFollowEachStep(t *testing.T) {
	for _, name := range []string{Kubernetes, FrontProxy, ServiceAccounts} {
		t.Run(name, func(t *testing.T) {
			db, dir := newStore(t), t.TempDir()
			a := server(t, db, "a", dir)
			b := server(t, db, "b", joined(t, dir))
			before := bundleOf(t, a, name)
			for _, step := range steps {
				if _, err := a.Advance(t.Context(), name, step); err != nil {
					t.Fatal(err)
				}
				if bundleOf(t, a, name) == bundleOf(t, b, name) {
					t.Fatalf("%s: the other server has followed before it could know", step)
				}
				if err := b.Apply(t.Context()); err != nil {
					t.Fatal(err)
				}
				if bundleOf(t, a, name) != bundleOf(t, b, name) || signerOf(t, a, name) != signerOf(t, b, name) {
					t.Errorf("%s: the servers have other keys", step)
				}
			}
			if bundleOf(t, a, name) == before {
				t.Error("the keys are the old ones")
			}
		})
	}
}

func TestAServerThatWasDownForWholeRotationsCatchesUp(t *testing.T) {
	db, dir := newStore(t), t.TempDir()
	a := server(t, db, "a", dir)
	other := joined(t, dir)
	server(t, db, "b", other)
	for range 2 {
		for _, step := range steps {
			if _, err := a.Advance(t.Context(), Kubernetes, step); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := server(t, db, "b", other)
	if err := b.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if bundleOf(t, a, Kubernetes) != bundleOf(t, b, Kubernetes) {
		t.Error("the server has other CAs")
	}
	if err := b.Keys.APIServer.Certificate().Leaf.CheckSignatureFrom(a.Keys.CA.Signer().Certificate); err != nil {
		t.Error(err)
	}
}

// TestAStepContinuesAfterACrashBetweenItsWriteAndItsApplication also takes the step again: it was
// taken, so that is an error that changes nothing.
func TestAStepContinuesAfterACrashBetweenItsWriteAndItsApplication(t *testing.T) {
	defer func() { written = func() {} }()
	for i, last := range append(steps, Abort) {
		t.Run(string(last), func(t *testing.T) {
			db, dir := newStore(t), t.TempDir()
			a := server(t, db, "a", dir)
			written = func() {}
			earlier := steps[:i]
			if last == Abort {
				earlier = steps[:1]
			}
			for _, step := range earlier {
				if _, err := a.Advance(t.Context(), Kubernetes, step); err != nil {
					t.Fatal(err)
				}
			}
			written = func() { panic("crash") }
			func() {
				defer func() { recover() }() //nolint:errcheck // the crash
				_, _ = a.Advance(t.Context(), Kubernetes, last)
				t.Error("no crash")
			}()
			written = func() {}
			a = server(t, db, "a", dir) // the next start
			if err := a.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
			records, err := a.Records(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got, want := a.Keys.CA.Hash(), records[Kubernetes].Signer(); got != want || a.Generation(Kubernetes) != records[Kubernetes].Generation {
				t.Errorf("%s signs, the record has %s", got, want)
			}
			if last != Finish && last != Abort {
				if _, err := a.Advance(t.Context(), Kubernetes, last); err == nil {
					t.Error("the step was taken twice")
				}
			}
		})
	}
}

func TestStepsOutOfOrderAreRefused(t *testing.T) {
	a := server(t, newStore(t), "a", t.TempDir())
	refused := func(name string, step Step) {
		t.Helper()
		if _, err := a.Advance(t.Context(), name, step); err == nil {
			t.Errorf("%s %q was taken in phase %q", name, step, phaseOf(t, a, name))
		}
	}
	for _, step := range []Step{Switch, Finish, Abort} {
		refused(Kubernetes, step)
	}
	refused("unknown", Start)
	refused(Etcd, Start) // the PKI has no such authority
	if _, err := a.Advance(t.Context(), Kubernetes, Start); err != nil {
		t.Fatal(err)
	}
	refused(Kubernetes, Start)
	refused(Kubernetes, Finish)
	refused(Kubernetes, "sideways")
	if _, err := a.Advance(t.Context(), Kubernetes, Switch); err != nil {
		t.Fatal(err)
	}
	refused(Kubernetes, Abort)
	refused(Kubernetes, Start)
}

func TestAnAbortedRotationLeavesTheOldCA(t *testing.T) {
	for _, name := range []string{Kubernetes, ServiceAccounts} {
		a := server(t, newStore(t), "a", t.TempDir())
		before := bundleOf(t, a, name)
		r, err := a.Advance(t.Context(), name, Start)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Advance(t.Context(), name, Abort); err != nil {
			t.Fatal(err)
		}
		if bundleOf(t, a, name) != before {
			t.Errorf("%s: the trusted keys have changed", name)
		}
		if !a.Removed(r.New) || a.Removed(r.Old) {
			t.Errorf("%s: the new key does not count as removed", name)
		}
	}
}

func TestAnOlderStoreDoesNotTakeKeysBack(t *testing.T) {
	dir := t.TempDir()
	a := server(t, newStore(t), "a", dir)
	for _, step := range steps {
		if _, err := a.Advance(t.Context(), Kubernetes, step); err != nil {
			t.Fatal(err)
		}
	}
	want := bundleOf(t, a, Kubernetes)
	restored := server(t, newStore(t), "a", dir) // a store from before the rotation
	if err := restored.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if bundleOf(t, restored, Kubernetes) != want {
		t.Error("the old CA is back")
	}
	records, err := restored.Records(t.Context())
	if err != nil || records[Kubernetes] == nil || string(records[Kubernetes].Bundle) != want {
		t.Errorf("the store has no record of the present CA: %v", err)
	}
}

func TestAServerWithAnotherSealSaysSo(t *testing.T) {
	db, dir := newStore(t), t.TempDir()
	a, other := server(t, db, "a", dir), joined(t, dir)
	remove(t, filepath.Join(other, pki.SealFile))
	b := server(t, db, "b", other)
	if _, err := a.Advance(t.Context(), Kubernetes, Start); err != nil {
		t.Fatal(err)
	}
	if err := b.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), pki.SealFile) {
		t.Errorf("got %v", err)
	}
}

func TestAStoreRestoredWithoutItsKeysStartsWithNewOnes(t *testing.T) {
	db := newStore(t)
	a := server(t, db, "a", t.TempDir())
	if _, err := a.Advance(t.Context(), Kubernetes, Start); err != nil {
		t.Fatal(err)
	}
	b := server(t, db, "b", t.TempDir())
	alone := false
	b.Alone = func() bool { return alone }
	if err := b.Apply(t.Context()); err == nil {
		t.Error("a server with other keys has joined others")
	}
	alone = true
	if err := b.Apply(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.Advance(t.Context(), Kubernetes, Start); err != nil {
		t.Error(err)
	}
}

// TestMembersOfTheStoreGetANewCA also checks that a server is named that has loaded only the old
// CA.
func TestMembersOfTheStoreGetANewCA(t *testing.T) {
	db, dir := newStore(t), t.TempDir()
	a := server(t, db, "a", dir)
	keys, err := pki.Open(pki.Config{Dir: dir, PeerNames: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	a.Keys = keys
	old := keys.PeerCA.Pool()
	for _, step := range steps[:2] {
		if _, err := a.Advance(t.Context(), Etcd, step); err != nil {
			t.Fatal(err)
		}
	}
	own, chain := keys.Peer.Certificate(), x509.NewCertPool()
	for _, der := range own.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		chain.AddCert(c)
	}
	if _, err := own.Leaf.Verify(x509.VerifyOptions{Roots: old, Intermediates: chain, DNSName: "a"}); err != nil {
		t.Errorf("a member that knows only the old CA: %v", err)
	}
	records, err := a.Records(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := records[Etcd]
	report := Report{Server: "a", Generations: map[string]int64{Etcd: r.Generation}, Loaded: map[string][]string{Etcd: {r.Old}}}
	if lagging := Lagging(r, []Report{report}, nil); len(lagging) != 1 || !lagging[0].Unknown {
		t.Errorf("got %+v", lagging)
	}
	report.Loaded[Etcd] = []string{r.New, r.Old}
	if lagging := Lagging(r, []Report{report}, nil); len(lagging) != 0 {
		t.Errorf("got %+v", lagging)
	}
}

func TestOnlyMembersAreAwaited(t *testing.T) {
	db := newStore(t)
	a := server(t, db, "a", t.TempDir())
	if err := a.report(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Members = func(context.Context) ([]string, error) { return []string{"b"}, nil }
	reports, err := a.Reports(t.Context())
	if err != nil || len(reports) != 1 || reports[0].Server != "b" || reports[0].Error == "" {
		t.Errorf("got %+v, %v", reports, err)
	}
}

func TestTheStoreDoesNotRevealPrivateKeys(t *testing.T) {
	db := newStore(t)
	a := server(t, db, "a", t.TempDir())
	for _, step := range steps[:2] {
		if _, err := a.Advance(t.Context(), Kubernetes, step); err != nil {
			t.Fatal(err)
		}
		found, err := db.Range(t.Context(), "/knarr/", store.RangeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range found.KVs {
			if strings.Contains(string(kv.Value), "PRIVATE") {
				t.Errorf("%s has a private key", kv.Key)
			}
		}
	}
}

func TestLaggingPartiesAreNamed(t *testing.T) {
	db, dir := newStore(t), t.TempDir()
	a := server(t, db, "a", dir)
	r, err := a.Advance(t.Context(), Kubernetes, Start)
	if err != nil {
		t.Fatal(err)
	}
	bundle := BundleHash(r.Bundle)
	ready := Report{Server: "a", Generations: map[string]int64{Kubernetes: 1}}
	late := Report{Server: "b"}
	stuck := Report{Server: "c", Error: "disk full"}
	nodes := []Node{
		{Name: "a"}, {Name: "foreign"}, {Name: "new", Tells: true, Authorities: bundle, Client: r.Old, Serving: r.Old}, {Name: "old", Tells: true, Authorities: "other"},
	}
	check := func(r *Record, servers []Report, want ...string) {
		t.Helper()
		var got []string
		for _, l := range Lagging(r, servers, nodes) {
			got = append(got, l.Party)
		}
		if strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("in phase %q: %v lag, want %v", r.Phase, got, want)
		}
	}
	check(r, []Report{ready, late, stuck}, "server b", "server c", "node foreign", "node old")
	r, err = a.Advance(t.Context(), Kubernetes, Switch)
	if err != nil {
		t.Fatal(err)
	}
	nodes[2].Authorities, nodes[3].Authorities = BundleHash(r.Bundle), BundleHash(r.Bundle)
	nodes[3].Client, nodes[3].Serving = r.New, r.New
	ready.Generations[Kubernetes] = 2
	check(r, []Report{ready}, "node foreign", "node new")
	ready.Certificates = []pki.Entry{{Name: "admin", Kind: pki.KindLeaf, Issuer: r.Old}}
	check(r, []Report{ready}, "server a", "node foreign", "node new")
}

func TestRunFollowsTheStoreAndReports(t *testing.T) {
	db, dir := newStore(t), t.TempDir()
	a := server(t, db, "a", dir)
	b := server(t, db, "b", joined(t, dir))
	applied := make(chan struct{}, 64)
	b.Applied = func(context.Context) error { applied <- struct{}{}; return nil }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); b.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	<-applied
	r, err := a.Advance(t.Context(), Kubernetes, Start)
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.After(30 * time.Second)
	for {
		reports, err := a.Reports(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(reports) == 1 && reports[0].Generations[Kubernetes] == r.Generation {
			break
		}
		select {
		case <-applied:
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			t.Fatalf("got %+v", reports)
		}
	}
	if err := a.Forget(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
}

func bundleOf(t *testing.T, m *Manager, name string) string {
	t.Helper()
	if name == ServiceAccounts {
		bundle, err := m.Keys.ServiceAccount.Keys().Bundle()
		if err != nil {
			t.Fatal(err)
		}
		return string(bundle)
	}
	return string(m.Keys.Authorities()[name].Bundle())
}

func signerOf(t *testing.T, m *Manager, name string) string {
	t.Helper()
	if name == ServiceAccounts {
		der, err := x509.MarshalPKIXPublicKey(m.Keys.ServiceAccount.Keys().Signer.Public())
		if err != nil {
			t.Fatal(err)
		}
		return string(der)
	}
	return m.Keys.Authorities()[name].Hash()
}

func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
