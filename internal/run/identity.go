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
	// signersBackdate is how far signers of Kubernetes date a certificate back, for clocks that are
	// behind. It is no part of its life.
	signersBackdate = 5 * time.Minute
	// A certificate is renewed when 70 to 80 percent of its life are over: at a time of its own, so
	// that nodes that have joined together do not all renew together.
	renewAfter, renewSpread = 0.7, 0.1
	// firstPause and longestPause bound the wait after a renewal that failed; it doubles each time.
	firstPause, longestPause = time.Second, 5 * time.Minute
	// longestSleep is how soon the clock is looked at again: machines sleep, and clocks are set.
	longestSleep = time.Hour
)

// identity is one certificate of a joined node with its key, kept on disk and renewed before it
// expires. Both lie in one file that is replaced in one step, so that a crash cannot leave a key
// with another key's certificate. Safe for concurrent use.
type identity struct {
	// name is the file's, without its folder and .pem.
	dir, name string
	// what names the certificate in messages.
	what string
	// template is what the certificate says about the node.
	template *x509.CertificateRequest
	// sign has the request (DER) signed by the cluster; the answer is in PEM.
	sign func(ctx context.Context, request []byte) (certificate []byte, err error)
	// storing is told of a new certificate before it is kept; an error means that it is not. May be
	// nil.
	storing func(ctx context.Context, fresh, old *tls.Certificate) error
	// changed is told of a new certificate once it is in use. May be nil.
	changed func()
	log     *slog.Logger

	current atomic.Pointer[tls.Certificate]
}

// maxKeys is how many keys a machine remembers to have had.
const maxKeys = 64

// keys names the keys that this machine has had for the certificate, the newest last: by them it
// knows a Node that has not heard of the newest one, such as one that came out of a snapshot.
func (i *identity) keys() []string {
	data, _ := os.ReadFile(filepath.Join(i.dir, i.name+".keys")) // missing in a data folder of an earlier version
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

// load reads what the disk has. A certificate that has expired is an expiredError, and stays in use
// as far as its key counts.
func (i *identity) load(now time.Time) error {
	pair, err := tls.LoadX509KeyPair(i.path(), i.path())
	if errors.Is(err, fs.ErrNotExist) {
		// Earlier versions kept two files.
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

// fits reports whether a certificate says what the template does.
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

// expiredError is a certificate that nothing renewed in time.
type expiredError struct {
	what string
	at   time.Time
}

func (e expiredError) Error() string {
	return fmt.Sprintf("%s expired at %s", e.what, e.at.UTC().Format(time.RFC3339))
}

// renewalAt is when a certificate is to be renewed; spread is in [0,1).
func renewalAt(c *x509.Certificate, spread float64) time.Time {
	begin := c.NotBefore
	if life := c.NotAfter.Sub(begin); life > signersBackdate {
		begin = begin.Add(signersBackdate)
	}
	life := c.NotAfter.Sub(begin)
	return begin.Add(time.Duration(float64(life) * (renewAfter + renewSpread*spread)))
}

// run keeps the certificate valid until ctx ends: it asks for the first one if there is none, and
// for the next one in time.
func (i *identity) run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		if pair := i.current.Load(); pair != nil {
			if wait := time.Until(renewalAt(pair.Leaf, mathrand.Float64())); wait > 0 {
				sleep(ctx, min(wait, longestSleep))
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
		i.complain(err, pause)
		sleep(ctx, pause)
		pause = min(2*pause, longestPause)
	}
}

func (i *identity) complain(err error, pause time.Duration) {
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

// sleep waits for the time to pass or ctx to end.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// renew gets a new certificate, keeps it and uses it. A nil key makes a new one.
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
		_ = os.Remove(filepath.Join(i.dir, i.name+earlier)) // load prefers the file of both
	}
	i.current.Store(&pair)
	i.log.Info(i.what+" renewed", "expires", pair.Leaf.NotAfter)
	if i.changed != nil {
		i.changed()
	}
	return nil
}

// key is the private key in use, or nil.
func (i *identity) key() crypto.Signer {
	if pair := i.current.Load(); pair != nil {
		if key, ok := pair.PrivateKey.(crypto.Signer); ok {
			return key
		}
	}
	return nil
}

// keyHash names a certificate's key as a Node's annotation does.
func keyHash(pair *tls.Certificate) string {
	return certificates.KeyHash(pair.Leaf.RawSubjectPublicKeyInfo)
}
