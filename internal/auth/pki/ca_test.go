package pki

import (
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// trusts reports whether a client with these roots accepts the API server's certificate.
func trusts(p *PKI, roots ...*x509.Certificate) error {
	pool, rest := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range roots {
		pool.AddCert(c)
	}
	chain, err := p.withCA(p.APIServer)(nil)
	if err != nil {
		return err
	}
	for _, der := range chain.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		rest.AddCert(c)
	}
	_, err = p.APIServer.Certificate().Leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: rest, DNSName: "kubernetes"})
	return err
}

// rotation is the three states of a CA's rotation.
type rotation struct {
	old, next *Authority
	cross     []byte
}

func beginRotation(t *testing.T, p *PKI) rotation {
	t.Helper()
	old := p.CA.Signer()
	next, cross, err := old.Successor(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if string(next.Certificate.RawSubject) != string(old.Certificate.RawSubject) {
		t.Fatal("the successor has another subject, so clients do not find their certificates")
	}
	return rotation{old, next, cross}
}

func (r rotation) adopt(p *PKI, phase string) error {
	var err error
	switch phase {
	case "trust":
		err = p.CA.Adopt(slices.Concat(r.old.CertPEM, r.next.CertPEM), r.old.KeyPEM, nil)
	case "sign":
		err = p.CA.Adopt(slices.Concat(r.next.CertPEM, r.old.CertPEM), r.next.KeyPEM, r.cross)
	case "finish":
		err = p.CA.Adopt(r.next.CertPEM, r.next.KeyPEM, nil)
	}
	if err != nil {
		return err
	}
	return p.Renew()
}

func TestClientsOfEitherCAAreServedUntilTheOldOneIsRemoved(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, time.Now())
	r := beginRotation(t, p)
	oldAdmin := p.Admin.Certificate()
	for _, phase := range []string{"trust", "sign", "finish"} {
		changed := p.CA.Changed()
		if err := r.adopt(p, phase); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
		default:
			t.Errorf("%s: the change is not announced", phase)
		}
		if err := trusts(p, r.next.Certificate); (err == nil) != (phase != "trust") {
			t.Errorf("%s: a client of the new CA: %v", phase, err)
		}
		if err := trusts(p, r.old.Certificate); (err == nil) != (phase != "finish") {
			t.Errorf("%s: a client of the old CA: %v", phase, err)
		}
		if _, err := oldAdmin.Leaf.Verify(x509.VerifyOptions{Roots: p.CA.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); (err == nil) != (phase != "finish") {
			t.Errorf("%s: a client's certificate of the old CA: %v", phase, err)
		}
		again := open(t, dir, time.Now())
		if again.CA.Hash() != p.CA.Hash() || string(again.CA.Bundle()) != string(p.CA.Bundle()) || string(again.CA.Cross()) != string(p.CA.Cross()) {
			t.Errorf("%s: the folder holds another state", phase)
		}
		for i, l := range p.leaves {
			if got := again.leaves[i].Certificate(); !got.Leaf.Equal(l.Certificate().Leaf) || len(got.Certificate) != len(l.Certificate().Certificate) {
				t.Errorf("%s: %s changed at the next start", phase, l.spec.File)
			}
		}
	}
}

// TestARotationContinuesAfterACrashAtAnyWrite stops each step before each of its writes, opens the
// folder as a new process does, and repeats the step. A server that was down takes the last step
// alone.
func TestARotationContinuesAfterACrashAtAnyWrite(t *testing.T) {
	defer func() { step = func(string) {} }()
	type crash struct{}
	for _, story := range [][]string{{"trust"}, {"trust", "sign"}, {"trust", "sign", "finish"}, {"sign"}, {"finish"}, {"trust", "finish"}} {
		last := story[len(story)-1]
		for stop := 0; ; stop++ {
			step = func(string) {}
			dir := t.TempDir()
			p := open(t, dir, time.Now())
			r := beginRotation(t, p)
			for _, phase := range story[:len(story)-1] {
				if err := r.adopt(p, phase); err != nil {
					t.Fatal(err)
				}
			}
			writes, crashed := 0, false
			step = func(string) {
				if writes == stop {
					crashed = true
					panic(crash{})
				}
				writes++
			}
			func() {
				defer func() {
					if v := recover(); v != nil && v != (crash{}) {
						panic(v)
					}
				}()
				if err := r.adopt(p, last); err != nil {
					t.Fatal(err)
				}
			}()
			step = func(string) {}
			name := fmt.Sprintf("%v, crash before write %d", story, stop)
			again := open(t, dir, time.Now())
			if err := trusts(again, again.CA.Signer().Certificate); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if h := again.CA.Hash(); h != r.old.Hash() && h != r.next.Hash() {
				t.Errorf("%s: another CA signs", name)
			}
			if err := r.adopt(again, last); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := trusts(open(t, dir, time.Now()), r.next.Certificate); (err == nil) != (last != "trust") {
				t.Errorf("%s: a client of the new CA after the repetition: %v", name, err)
			}
			if !crashed {
				if stop == 0 {
					t.Errorf("%s: nothing was written", name)
				}
				break
			}
		}
	}
}

func TestAnExpiredLeafIsRenewedAtTheStart(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	first := open(t, dir, now)
	later := open(t, dir, now.AddDate(2, 0, 0))
	for i, l := range later.leaves {
		if l.Certificate().Leaf.Equal(first.leaves[i].Certificate().Leaf) || !l.Certificate().Leaf.NotAfter.After(now.AddDate(2, 6, 0)) {
			t.Errorf("%s ends at %v", l.spec.File, l.Certificate().Leaf.NotAfter)
		}
	}
	if _, err := Open(Config{Dir: dir, Clock: testingclock.NewFakeClock(now.AddDate(11, 0, 0))}); err == nil {
		t.Error("an expired CA was accepted")
	}
}

func TestTokenKeysAreReplacedInOneStep(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, time.Now())
	old := p.ServiceAccount.Keys()
	keyPEM, public, err := NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	oldBundle, err := old.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	added, err := PublicKeyPEM(public)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ServiceAccount.Adopt(slices.Concat(oldBundle, added), keyPEM); err != nil {
		t.Fatal(err)
	}
	for name, keys := range map[string]*SigningKeys{"in memory": p.ServiceAccount.Keys(), "on disk": open(t, dir, time.Now()).ServiceAccount.Keys()} {
		if !SamePublicKey(keys.Signer.Public(), public) || len(keys.Verifiers) != 2 || !SamePublicKey(keys.Verifiers[1], old.Signer.Public()) {
			t.Errorf("%s: the new key does not sign, or the old one is not accepted", name)
		}
	}
}

func TestASealOpensOnlyWithItsSecretAndPurpose(t *testing.T) {
	dir := t.TempDir()
	s, err := openSeal(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := openSeal(dir)
	if err != nil {
		t.Fatal(err)
	}
	other, err := openSeal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := s.Close("a", []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Open("a", sealed); err != nil || string(got) != "text" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := again.Open("b", sealed); err == nil {
		t.Error("opened for another purpose")
	}
	if _, err := other.Open("a", sealed); err == nil || s.ID() == other.ID() || s.ID() != again.ID() {
		t.Error("another secret opened it, or has the same ID")
	}
}

func TestTheInventoryNamesEverythingThatExpires(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, time.Now())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.WriteKubeconfig(kubeconfig, "https://192.0.2.1:6443", p.Admin); err != nil {
		t.Fatal(err)
	}
	r := beginRotation(t, p)
	for _, phase := range []string{"trust", "sign"} {
		if err := r.adopt(p, phase); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := Inventory(dir, kubeconfig, dir+"/missing")
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[string]int{}
	for _, e := range entries {
		byKind[e.Kind]++
		switch {
		case e.Error != "":
			t.Errorf("%s: %s", e.Name, e.Error)
		case e.Kind == KindCA && e.Name == "ca" && e.Signs != (e.Key == r.next.Hash()):
			t.Errorf("%s %s signs: %v", e.Name, e.Key, e.Signs)
		case (e.Kind == KindLeaf || e.Kind == KindKubeconfig) && e.Name != "front-proxy-client" && e.Issuer != r.next.Hash():
			t.Errorf("%s is signed by %s", e.Name, e.Issuer)
		}
	}
	if byKind[KindCA] != 3 || byKind[KindLeaf] != len(p.leaves) || byKind[KindKubeconfig] != 1 || byKind[KindTokenKey] != 1 {
		t.Errorf("got %v", byKind)
	}
}
