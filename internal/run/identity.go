package run

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/knarr-project/knarr/internal/controllers/certificates"
	"github.com/knarr-project/knarr/internal/durable"
)

const (
	// signersBackdate is how far Kubernetes' signers backdate a certificate, for clocks that are
	// slow. It does not count as part of the certificate's life.
	signersBackdate = 5 * time.Minute
	// A certificate is renewed when 70 to 80 percent of its life are over. The time is random, so
	// that nodes that joined together do not renew at the same moment.
	renewAfter, renewSpread = 0.7, 0.1
	// firstPause and longestPause limit the pause after a failed renewal; pauses double.
	firstPause, longestPause = time.Second, 5 * time.Minute
	// longestSleep is the maximum interval for checking the clock, because machines sleep and
	// clocks are set.
	longestSleep = time.Hour
	// caSpread is the time over which nodes renew their certificates after a change of the CA.
	caSpread = 10 * time.Second
)

// identity is one certificate of a joined node with its key. It is stored on disk and renewed
// before it expires. Key and certificate are in one file that is replaced atomically, so a crash
// cannot separate them. It is safe for concurrent use.
type identity struct {
	// name is the file's name without .pem.
	dir, name string
	// what names the certificate in messages.
	what string
	// template holds the node's names and addresses for the certificate.
	template *x509.CertificateRequest
	// sign has the cluster sign the request (DER); the certificate is in PEM.
	sign func(ctx context.Context, request []byte) (certificate []byte, err error)
	// storing is called before a new certificate is stored; an error prevents that. May be nil.
	storing func(ctx context.Context, fresh, old *tls.Certificate) error
	// changed is called once a new certificate is in use. May be nil.
	changed func()
	// signed reports whether the CA that signs now has signed a certificate; another certificate is
	// renewed at once. May be nil.
	signed func(*x509.Certificate) bool
	log    *slog.Logger

	woken   atomic.Pointer[chan struct{}] // closed by check
	current atomic.Pointer[tls.Certificate]
	failed  atomic.Int64 // renewals
}

// maxKeys is the number of earlier keys that a machine remembers.
const maxKeys = 64

// keys returns the hashes of the keys that this machine has had for the certificate, the newest
// last. With them it recognizes a Node object that does not name the newest key, for example after
// a restore from a snapshot.
func (i *identity) keys() []string {
	// A data folder of an earlier version has no such file.
	data, _ := os.ReadFile(filepath.Join(i.dir, i.name+".keys"))
	keys := strings.Fields(string(data))
	if pair := i.current.Load(); pair != nil && !slices.Contains(keys, keyHash(pair)) {
		keys = append(keys, keyHash(pair))
	}
	return keys
}

// remember adds a key to keys.
func (i *identity) remember(key string) error {
	keys := i.keys()
	if !slices.Contains(keys, key) {
		keys = append(keys, key)
	}
	keys = keys[max(0, len(keys)-maxKeys):]
	return durable.WriteFile(filepath.Join(i.dir, i.name+".keys"), []byte(strings.Join(keys, "\n")+"\n"))
}

func (i *identity) path() string { return filepath.Join(i.dir, i.name+".pem") }

// load reads the stored certificate. If it has expired, load returns an expiredError; the key is
// still valid for joining again.
func (i *identity) load(now time.Time) error {
	pair, err := tls.LoadX509KeyPair(i.path(), i.path())
	if errors.Is(err, fs.ErrNotExist) {
		// Earlier versions stored two files.
		pair, err = tls.LoadX509KeyPair(filepath.Join(i.dir, i.name+".crt"), filepath.Join(i.dir, i.name+".key"))
	}
	if err != nil {
		return err
	}
	if !i.fits(pair.Leaf) {
		return fmt.Errorf("%s in %s is for other names or addresses", i.what, i.dir)
	}
	i.current.Store(&pair)
	if !now.Before(pair.Leaf.NotAfter) {
		return expiredError{what: i.what, at: pair.Leaf.NotAfter}
	}
	return nil
}

// fits reports whether a certificate has the template's names and addresses.
func (i *identity) fits(c *x509.Certificate) bool {
	for _, ip := range i.template.IPAddresses {
		if !slices.ContainsFunc(c.IPAddresses, func(have net.IP) bool { return have.Equal(ip) }) {
			return false
		}
	}
	for _, name := range i.template.DNSNames {
		if !slices.Contains(c.DNSNames, name) {
			return false
		}
	}
	return c.Subject.CommonName == i.template.Subject.CommonName
}

// expiredError is the error for a certificate that was not renewed in time.
type expiredError struct {
	what string
	at   time.Time
}

func (e expiredError) Error() string {
	return fmt.Sprintf("%s expired at %s", e.what, e.at.UTC().Format(time.RFC3339))
}

// renewalAt is when to renew a certificate; spread is in [0,1).
func renewalAt(c *x509.Certificate, spread float64) time.Time {
	begin := c.NotBefore
	if life := c.NotAfter.Sub(begin); life > signersBackdate {
		begin = begin.Add(signersBackdate)
	}
	life := c.NotAfter.Sub(begin)
	return begin.Add(time.Duration(float64(life) * (renewAfter + renewSpread*spread)))
}

// run keeps the certificate valid until ctx ends. It requests the first one if there is none, and
// later ones in time.
func (i *identity) run(ctx context.Context) {
	pause, spread := firstPause, caSpread
	for ctx.Err() == nil {
		if pair := i.current.Load(); pair != nil {
			woken := i.wakes()
			wait := time.Until(renewalAt(pair.Leaf, mathrand.Float64()))
			if i.signed == nil || i.signed(pair.Leaf) {
				spread = caSpread
			} else if wait > 0 {
				// Nodes do not renew at the same moment. If the signer has another CA for
				// long, they ask less and less often.
				sleep(ctx, min(wait, mathrand.N(spread)))
				wait, spread = 0, min(2*spread, longestSleep)
			}
			if wait > 0 {
				i.rest(ctx, woken, min(wait, longestSleep))
				continue
			}
		}
		err := i.renew(ctx, nil)
		if err == nil {
			pause = firstPause
			continue
		}
		if ctx.Err() != nil {
			return
		}
		i.failed.Add(1)
		i.logFailure(err, pause)
		sleep(ctx, pause)
		pause = min(2*pause, longestPause)
	}
}

// wakes returns a channel that is closed by the next check. Only run calls it.
func (i *identity) wakes() <-chan struct{} {
	if ch := i.woken.Load(); ch != nil {
		return *ch
	}
	ch := make(chan struct{})
	i.woken.Store(&ch)
	return ch
}

// rest waits for d, a check, or the end of ctx.
func (i *identity) rest(ctx context.Context, woken <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-woken:
	case <-timer.C:
	}
}

// check makes run look at once whether the certificate must be renewed.
func (i *identity) check() {
	if ch := i.woken.Swap(nil); ch != nil {
		close(*ch)
	}
}

func (i *identity) logFailure(err error, pause time.Duration) {
	pair := i.current.Load()
	switch now := time.Now(); {
	case pair == nil:
		i.log.Warn("this node has no "+i.what+" yet; trying again", "in", pause, "error", err)
	case now.Before(pair.Leaf.NotAfter):
		i.log.Warn(i.what+" could not be renewed; trying again", "in", pause, "expires", pair.Leaf.NotAfter, "error", err)
	default:
		i.log.Error(i.what+" has expired and could not be renewed: make a new token on a server with `knarr token create` and start this node again with --token",
			"in", pause, "expired", pair.Leaf.NotAfter, "error", err)
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// renew requests, stores and uses a new certificate. If key is nil, it makes a new key.
func (i *identity) renew(ctx context.Context, key crypto.Signer) error {
	if key == nil {
		fresh, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		key = fresh
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, i.template, key)
	if err != nil {
		return err
	}
	certPEM, err := i.sign(ctx, request)
	if err != nil {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("the cluster signed another key than the one asked for: %w", err)
	}
	if i.storing != nil {
		if err := i.storing(ctx, &pair, i.current.Load()); err != nil {
			return err
		}
	}
	if err := i.remember(keyHash(&pair)); err != nil {
		return err
	}
	if err := durable.WriteFile(i.path(), bytes.Join([][]byte{keyPEM, certPEM}, nil)); err != nil {
		return err
	}
	for _, earlier := range []string{".crt", ".key"} {
		_ = os.Remove(filepath.Join(i.dir, i.name+earlier)) // load prefers the single file
	}
	i.current.Store(&pair)
	i.log.Info(i.what+" renewed", "expires", pair.Leaf.NotAfter)
	if i.changed != nil {
		i.changed()
	}
	return nil
}

// key returns the private key in use, or nil.
func (i *identity) key() crypto.Signer {
	if pair := i.current.Load(); pair != nil {
		if key, ok := pair.PrivateKey.(crypto.Signer); ok {
			return key
		}
	}
	return nil
}

// keyHash returns the hash of a certificate's key as used in the Node's annotation.
func keyHash(pair *tls.Certificate) string {
	return certificates.KeyHash(pair.Leaf.RawSubjectPublicKeyInfo)
}
