package rotation

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/knarr-project/knarr/internal/auth/pki"
)

// Names of what can be rotated.
const (
	Kubernetes      = "kubernetes"       // the CA of API servers, nodes and users
	FrontProxy      = "front-proxy"      // the CA of servers that forward requests
	Etcd            = "etcd"             // the CA of the store's members
	ServiceAccounts = "service-accounts" // the keys of service account tokens
	Encryption      = "encryption"       // the keys that encrypt objects in the store
)

// Phase is the state of a rotation.
type Phase string

// Phases in their order.
const (
	Settled  Phase = ""
	Trusting Phase = "trust"
	Signing  Phase = "sign"
)

// Step leads from one Phase to the next.
type Step string

// Steps, and the phases that they lead from and to.
const (
	Start  Step = "start"  // Settled to Trusting
	Switch Step = "sign"   // Trusting to Signing
	Finish Step = "finish" // Signing to Settled
	Abort  Step = "abort"  // Trusting to Settled
)

// Record is the cluster's decision about one authority.
type Record struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	Phase      Phase  `json:"phase,omitempty"`
	// Bundle holds the trusted certificates, or public keys, in PEM, the signer's first. It is
	// empty for Encryption.
	Bundle []byte `json:"bundle"`
	// Old and New are the hashes of the two keys of a rotation; both are empty when it is settled.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Cross is the new CA's certificate by the old one, from Trusting until Finish.
	Cross []byte `json:"cross,omitempty"`
	// Keys holds sealed private keys by the hash of their public key, or for Encryption sealed
	// configurations by their use. Seal is the ID of the secret.
	Keys map[string][]byte `json:"keys"`
	Seal string            `json:"seal"`
	// Removed holds the hashes of keys that were trusted and are not any more.
	Removed []string  `json:"removed,omitempty"`
	Changed time.Time `json:"changed"`
}

// errUnknown is the error for a name that is not one of the cluster's authorities.
var errUnknown = errors.New("unknown authority")

// hashes returns the hashes of the bundle's keys, the signer's first.
func (r *Record) hashes() ([]string, error) {
	if r.Name == ServiceAccounts {
		keys, err := keyutil.ParsePublicKeysPEM(r.Bundle)
		if err != nil {
			return nil, err
		}
		var out []string
		for _, k := range keys {
			h, err := pki.KeyHash(k)
			if err != nil {
				return nil, err
			}
			out = append(out, h)
		}
		return out, nil
	}
	all, err := cert.ParseCertsPEM(r.Bundle)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, c := range all {
		out = append(out, pki.CertificateHash(c))
	}
	return out, nil
}

// Signer returns the hash of the signer's key, or "" for a damaged Record.
func (r *Record) Signer() string {
	if all, err := r.hashes(); err == nil && len(all) > 0 {
		return all[0]
	}
	return ""
}

// reorder returns the bundle with the entry of one hash first, and without the entry of another.
func (r *Record) reorder(first, without string) ([]byte, error) {
	all, err := r.hashes()
	if err != nil {
		return nil, err
	}
	end := []byte("-----END CERTIFICATE-----\n")
	if r.Name == ServiceAccounts {
		end = []byte("-----END PUBLIC KEY-----\n")
	}
	var head, tail []byte
	for i, entry := range bytes.SplitAfter(r.Bundle, end)[:len(all)] {
		switch all[i] {
		case first:
			head = entry
		case without:
		default:
			tail = append(tail, entry...)
		}
	}
	if head == nil {
		return nil, fmt.Errorf("record %s: the bundle has no entry %s", r.Name, first)
	}
	return slices.Concat(head, tail), nil
}

// begin returns the Record of Trusting. It makes the new authority or key. before is the last
// Record, or nil.
func begin(name string, before *Record, keys *pki.PKI, now time.Time) (*Record, error) {
	r := &Record{Name: name, Generation: 1, Phase: Trusting, Keys: map[string][]byte{}, Seal: keys.Seal.ID(), Changed: now.UTC()}
	if before != nil {
		r.Generation, r.Removed = before.Generation+1, before.Removed
	}
	if name == ServiceAccounts {
		return r, r.beginKeys(keys)
	}
	ca := authority(keys, name)
	if ca == nil {
		return nil, fmt.Errorf("%w: this cluster has no authority %q", errUnknown, name)
	}
	old := ca.Signer()
	next, cross, err := old.Successor(now)
	if err != nil {
		return nil, err
	}
	r.Bundle, r.Cross = slices.Concat(ca.Bundle(), next.CertPEM), cross
	return r, errors.Join(r.seal(keys.Seal, &r.Old, old.Key.Public(), old.KeyPEM), r.seal(keys.Seal, &r.New, next.Key.Public(), next.KeyPEM))
}

func (r *Record) beginKeys(keys *pki.PKI) error {
	old := keys.ServiceAccount.Keys()
	oldPEM, err := keyutil.MarshalPrivateKeyToPEM(old.Signer)
	if err != nil {
		return err
	}
	nextPEM, next, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	accepted, err := old.Bundle()
	if err != nil {
		return err
	}
	added, err := pki.PublicKeyPEM(next)
	if err != nil {
		return err
	}
	r.Bundle = slices.Concat(accepted, added)
	return errors.Join(r.seal(keys.Seal, &r.Old, old.Signer.Public(), oldPEM), r.seal(keys.Seal, &r.New, next, nextPEM))
}

// seal adds a private key, and returns its hash.
func (r *Record) seal(s *pki.Seal, hash *string, public crypto.PublicKey, keyPEM []byte) (err error) {
	if *hash, err = pki.KeyHash(public); err != nil {
		return err
	}
	r.Keys[*hash], err = s.Close(r.Name+" "+*hash, keyPEM)
	return err
}

// advance returns the Record after a step other than Start.
func advance(r *Record, step Step, now time.Time) (*Record, error) {
	from := map[Step]Phase{Switch: Trusting, Finish: Signing, Abort: Trusting}
	phase, known := from[step]
	if !known {
		return nil, fmt.Errorf("step %q is not usable: start, sign, finish or abort", step)
	}
	if r.Phase != phase {
		return nil, fmt.Errorf("%s: step %q needs phase %q, but the phase is %q", r.Name, step, phase, r.Phase)
	}
	next := *r
	next.Generation, next.Changed = r.Generation+1, now.UTC()
	if r.Name == Encryption {
		next.advanceEncryption(step)
		return &next, nil
	}
	first, without := r.New, ""
	switch step {
	case Switch:
		next.Phase = Signing
	case Finish:
		without = r.Old
	case Abort:
		first, without = r.Old, r.New
	}
	if without != "" {
		next.Phase, next.Cross, next.Old, next.New = Settled, nil, "", ""
		next.Removed = append(slices.Clone(r.Removed), without)
	}
	next.Keys = map[string][]byte{first: r.Keys[first]}
	var err error
	next.Bundle, err = r.reorder(first, without)
	return &next, err
}

// adopt makes the server's keys what the Record says.
func (r *Record) adopt(keys *pki.PKI) error {
	signer := r.Signer()
	sealed, ok := r.Keys[signer]
	if !ok {
		return fmt.Errorf("record %s has no key for its signer", r.Name)
	}
	keyPEM, err := keys.Seal.Open(r.Name+" "+signer, sealed)
	if err != nil {
		return err
	}
	if r.Name == ServiceAccounts {
		return keys.ServiceAccount.Adopt(r.Bundle, keyPEM)
	}
	ca := authority(keys, r.Name)
	if ca == nil {
		return fmt.Errorf("%w: this server has no authority %q", errUnknown, r.Name)
	}
	var cross []byte
	if r.Phase == Signing {
		cross = r.Cross
	}
	return ca.Adopt(r.Bundle, keyPEM, cross)
}

// authority returns the CA of a name, or nil.
func authority(keys *pki.PKI, name string) *pki.CA { return keys.Authorities()[name] }

// BundleHash names a bundle of certificates, for parties to tell which one they have.
func BundleHash(bundle []byte) string {
	sum := sha256.Sum256(bytes.TrimSpace(bundle))
	return hex.EncodeToString(sum[:])
}
