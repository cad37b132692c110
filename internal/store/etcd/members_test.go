package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/network/nettest"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/storetest"
)

// authority signs the certificates of a test's members.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.issue(t, "ca", &x509.Certificate{Subject: pkix.Name{CommonName: "members"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) issue(t testing.TB, name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(a.dir, name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// options returns the options of a member on a free port.
func (a *authority) options(t testing.TB, name string) Options {
	t.Helper()
	a.issue(t, name, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	at, file := nettest.FreeAddress(t), func(name string) string { return filepath.Join(a.dir, name) }
	return Options{DataDir: dataDir(t), UnsafeNoSync: true, Peers: &PeerOptions{
		Name: name, Listen: at, Advertise: at, CertFile: file(name + ".crt"), KeyFile: file(name + ".key"), CAFile: file("ca.crt"),
	}}
}

// TestAMemberConnectsFromAnotherAddressOfItsMachine listens at 127.0.0.2. Connections to this
// address come from 127.0.0.1, which no certificate names.
func TestAMemberConnectsFromAnotherAddressOfItsMachine(t *testing.T) {
	ca := newAuthority(t)
	elsewhere := func(name string) Options {
		o := ca.options(t, name)
		ca.issue(t, name, &x509.Certificate{
			Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 2)}, DNSNames: []string{name + ".invalid"},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		})
		_, port, err := net.SplitHostPort(o.Peers.Listen)
		if err != nil {
			t.Fatal(err)
		}
		o.Peers.Listen = net.JoinHostPort("127.0.0.2", port)
		o.Peers.Advertise = o.Peers.Listen
		return o
	}
	joins(t, open(t, elsewhere("a")), elsewhere("b"))
}

func open(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// joins adds a member through an existing one, and waits until it has a vote.
func joins(t testing.TB, through *Engine, o Options) *Engine {
	t.Helper()
	added, all, err := through.AddLearner(t.Context(), o.Peers.Name, o.Peers.url())
	if err != nil {
		t.Fatal(err)
	}
	o.Peers.Join = all
	e := open(t, o)
	eventually(t, "the new member gets a vote", func() error { return e.Promote(t.Context(), added.ID) })
	return e
}

// untilHealed is long enough for two alarms about a corrupt member, one after the other.
const untilHealed = 4 * corruptFor

func eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(untilHealed); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func three(t *testing.T) (a, b, c *Engine) {
	t.Helper()
	ca := newAuthority(t)
	a = open(t, ca.options(t, "a"))
	b = joins(t, a, ca.options(t, "b"))
	return a, b, joins(t, b, ca.options(t, "c"))
}

func TestAMemberOfThreeMeetsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		_, b, _ := three(t)
		return b
	})
}

func putKey(t *testing.T, e *Engine, key, value string) {
	t.Helper()
	eventually(t, "write "+key, func() error {
		_, err := e.Commit(t.Context(), nil, store.Op{Key: key, Value: []byte(value)})
		return err
	})
}

func sees(t *testing.T, e *Engine, key, value string) {
	t.Helper()
	kv, _, err := e.Get(t.Context(), key, 0)
	if err != nil || kv == nil || string(kv.Value) != value {
		t.Errorf("%s is %v, %v; wanted %s", key, kv, err, value)
	}
}

func TestEachMemberReadsWritesOfTheOthers(t *testing.T) {
	a, b, c := three(t)
	all := []*Engine{a, b, c}
	for i := range 60 {
		writer, reader := all[i%3], all[(i+1+i/3)%3]
		key := fmt.Sprint("/k/", i)
		putKey(t, writer, key, "v")
		sees(t, reader, key, "v")
		if at, err := reader.Revision(t.Context()); err != nil || at < int64(i) {
			t.Errorf("revision %d, %v", at, err)
		}
	}
}

func TestOneOfThreeMayStopAndComeBack(t *testing.T) {
	ca := newAuthority(t)
	options := []Options{ca.options(t, "a"), ca.options(t, "b"), ca.options(t, "c")}
	all := []*Engine{open(t, options[0])}
	putKey(t, all[0], "/before", "1")
	all = append(all, joins(t, all[0], options[1]))
	all = append(all, joins(t, all[0], options[2]))
	for i := range all {
		other := all[(i+1)%3]
		sees(t, other, "/before", "1")
		if err := all[i].HandOver(t.Context()); err != nil {
			t.Error(err)
		}
		if err := all[i].Close(); err != nil {
			t.Error(err)
		}
		key := fmt.Sprint("/without/", i)
		putKey(t, other, key, "v")
		all[i] = open(t, options[i])
		sees(t, all[i], key, "v")
	}
	members, err := all[0].Members(t.Context())
	if err != nil || len(members) != 3 || members[0].Name != "a" || members[2].Name != "c" {
		t.Errorf("members %+v, %v", members, err)
	}
	for _, m := range members {
		if err := all[0].Reachable(t.Context(), m); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

// All writes succeed while the cluster grows to three members and shrinks to one again.
func TestGrowingAndShrinkingFailNoWrite(t *testing.T) {
	ca := newAuthority(t)
	a := open(t, ca.options(t, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var written atomic.Int64
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("/w%d/%d", w, i)
				if _, err := a.Commit(context.WithoutCancel(ctx), nil, store.Op{Key: key, Value: []byte("v")}); err != nil {
					t.Errorf("write %s: %v", key, err)
					return
				}
				if kv, _, err := a.Get(context.WithoutCancel(ctx), key, 0); err != nil || kv == nil {
					t.Errorf("read %s: %v, %v", key, kv, err)
				}
				written.Add(1)
			}
		})
	}
	b := joins(t, a, ca.options(t, "b"))
	c := joins(t, a, ca.options(t, "c"))
	if a.Alone() {
		t.Error("one of three is alone")
	}
	for _, other := range []*Engine{b, c} {
		id := uint64(other.server.MemberID())
		eventually(t, "remove a member", func() error { return a.Remove(t.Context(), id) })
		eventually(t, "a removed member stops", func() error {
			select {
			case <-other.Done():
				return nil
			default:
				return errors.New("it still runs")
			}
		})
		if !other.Removed() {
			t.Error("a removed member does not know that")
		}
	}
	cancel()
	writers.Wait()
	if !a.Alone() {
		t.Error("the last member does not know that it is alone")
	}
	r, err := a.Range(t.Context(), "/w", store.RangeOptions{CountOnly: true})
	if err != nil || r.Count != written.Load() {
		t.Errorf("%d keys of %d, %v", r.Count, written.Load(), err)
	}
}

func TestALastMemberReopensAlone(t *testing.T) {
	ca := newAuthority(t)
	o := ca.options(t, "a")
	a := open(t, o)
	b := joins(t, a, ca.options(t, "b"))
	eventually(t, "remove", func() error { return a.Remove(t.Context(), uint64(b.server.MemberID())) })
	putKey(t, a, "/k", "v")
	a.Close()
	o.Peers = nil // a copy for a snapshot
	again := open(t, o)
	if sees(t, again, "/k", "v"); !again.Alone() {
		t.Error("not alone")
	}
}

func TestAMemberNeedsTheOthersAddresses(t *testing.T) {
	ca := newAuthority(t)
	oa := ca.options(t, "a")
	a := open(t, oa)
	b := joins(t, a, ca.options(t, "b"))
	putKey(t, b, "/k", "v")
	a.Close()
	oa.Peers = nil
	if e, err := Open(t.Context(), oa); err == nil {
		e.Close()
		t.Error("a member of two opens alone")
	} else if !strings.Contains(err.Error(), "the store has other members: ") {
		t.Error(err)
	}
}

// TestASurvivorHasWhatWasAcknowledged loses two of three members. The copy of the last one has all
// writes that it has received, is alone, and leaves the member as it was.
func TestASurvivorHasWhatWasAcknowledged(t *testing.T) {
	ca := newAuthority(t)
	oa, ob, oc := ca.options(t, "a"), ca.options(t, "b"), ca.options(t, "c")
	a := open(t, oa)
	b, c := joins(t, a, ob), joins(t, a, oc)
	for i := range 20 {
		putKey(t, a, fmt.Sprint("/k/", i), "v")
		sees(t, c, fmt.Sprint("/k/", i), "v")
	}
	b.Close()
	a.Close()
	c.Close()
	scratch := filepath.Join(t.TempDir(), "copy")
	alone, err := OpenSurvivor(t.Context(), oc, scratch)
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	for i := range 20 {
		sees(t, alone, fmt.Sprint("/k/", i), "v")
	}
	putKey(t, alone, "/new", "v")
	if all := alone.members(); len(all) != 1 || !alone.Alone() {
		t.Errorf("the copy has the members %s", describeMembers(all))
	}
	oc.Peers = nil
	if e, err := Open(t.Context(), oc); err == nil {
		e.Close()
		t.Error("the member has forgotten the others")
	}
}

func TestMembershipErrors(t *testing.T) {
	a, b, c := three(t)
	if err := a.Promote(t.Context(), uint64(b.server.MemberID())); !errors.Is(err, ErrNotLearner) {
		t.Error(err)
	}
	if err := a.Remove(t.Context(), 42); !errors.Is(err, ErrNoMember) {
		t.Error(err)
	}
	absent := "https://127.0.0.1:1"
	learner, _, err := a.AddLearner(t.Context(), "d", absent)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.AddLearner(t.Context(), "e", "https://127.0.0.1:2"); !errors.Is(err, ErrTooManyLearners) {
		t.Error(err)
	}
	if err := c.Promote(t.Context(), learner.ID); !errors.Is(err, ErrLearnerNotReady) {
		t.Error(err)
	}
	if err := a.Reachable(t.Context(), learner); err == nil {
		t.Error("an absent member answers")
	}
	if err := c.Remove(t.Context(), learner.ID); err != nil {
		t.Error(err)
	}
	c.Close()
	if err := a.Remove(t.Context(), uint64(b.server.MemberID())); !errors.Is(err, ErrQuorum) {
		t.Errorf("the removal of one of two living members: %v", err)
	}
	if err := a.Remove(t.Context(), uint64(c.server.MemberID())); err != nil {
		t.Errorf("the removal of a dead member: %v", err)
	}
	putKey(t, a, "/after", "v")
}
