package run

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/url"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/auth/rotation"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/clusterinfo"
	"github.com/knarr-project/knarr/internal/durable"
)

// A joined node follows the rotation of the cluster's CA. It reads the trusted CAs from the
// cluster's information, over a connection that the CAs it knows have verified. It tells its state
// in an annotation of its Node, so that the administrator sees which nodes lag
// (internal/auth/rotation).

// authoritiesEvery is the interval at which a node reads the cluster's CAs; up to a tenth is added,
// so that nodes do not ask together.
const authoritiesEvery = time.Minute

// untoldEvery is that interval until the node has told its certificates. Its Node may not exist
// yet.
const untoldEvery = 5 * time.Second

// authorities are the CAs that a joined node trusts. Safe for concurrent use.
type authorities struct {
	path    string // of ca.crt
	current atomic.Pointer[trustedAuthorities]
}

// trustedAuthorities is never modified.
type trustedAuthorities struct {
	bundle []byte
	all    []*x509.Certificate
	pool   *x509.CertPool
}

func newAuthorities(dir string, bundle []byte) (*authorities, error) {
	a := &authorities{path: filepath.Join(dir, "ca.crt")}
	t, err := parseAuthorities(bundle)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.path, err)
	}
	a.current.Store(t)
	return a, nil
}

func parseAuthorities(bundle []byte) (*trustedAuthorities, error) {
	all, err := cert.ParseCertsPEM(bundle)
	if err != nil {
		return nil, err
	}
	t := &trustedAuthorities{bundle: bundle, all: all, pool: x509.NewCertPool()}
	for _, c := range all {
		if !c.IsCA {
			return nil, fmt.Errorf("certificate %q is not a CA", c.Subject.CommonName)
		}
		t.pool.AddCert(c)
	}
	return t, nil
}

func (a *authorities) pool() *x509.CertPool { return a.current.Load().pool }

// signed reports whether the CA that signs now has signed a certificate.
func (a *authorities) signed(c *x509.Certificate) bool {
	return c.CheckSignatureFrom(a.current.Load().all[0]) == nil
}

// issuer returns the hash of the key of the CA that has signed a certificate, or "".
func (a *authorities) issuer(c *x509.Certificate) string {
	for _, ca := range a.current.Load().all {
		if c.CheckSignatureFrom(ca) == nil {
			return pki.CertificateHash(ca)
		}
	}
	return ""
}

// adopt stores other CAs and uses them. It reports whether they differ.
func (a *authorities) adopt(bundle string) (bool, error) {
	if bundle == "" || bundle == string(a.current.Load().bundle) {
		return false, nil
	}
	t, err := parseAuthorities([]byte(bundle))
	if err != nil {
		return false, fmt.Errorf("the cluster's CAs: %w", err)
	}
	if err := durable.WriteFile(a.path, t.bundle); err != nil {
		return false, err
	}
	a.current.Store(t)
	return true, nil
}

// followAuthorities keeps the node's CAs those of the cluster until ctx ends.
func (j *joined) followAuthorities(ctx context.Context, c client.Interface) {
	var told string
	for ctx.Err() == nil {
		if err := j.learnAuthorities(ctx, c); err != nil && ctx.Err() == nil {
			j.log.Log(ctx, levelOf(err), "cannot read the cluster's CAs; trying again", "error", explainAuthority(err))
		}
		if text, err := j.tell(ctx, c, told); err != nil && ctx.Err() == nil {
			j.log.Debug("cannot tell this node's certificates", "error", err)
		} else {
			told = text
		}
		every := authoritiesEvery
		if told == "" {
			every = untoldEvery
		}
		select {
		case <-ctx.Done():
		case <-j.tidings: // a certificate was renewed
		case <-time.After(every + mathrand.N(every/10)):
		}
	}
}

// levelOf keeps the log short while a server is down, which other parts log too.
func levelOf(err error) slog.Level {
	if errors.As(err, &x509.UnknownAuthorityError{}) {
		return slog.LevelError
	}
	return slog.LevelDebug
}

// explainAuthority adds the remedy for a node that has missed a rotation.
func explainAuthority(err error) error {
	if errors.As(err, &x509.UnknownAuthorityError{}) {
		return fmt.Errorf("%w: the cluster's CA was replaced while this node was away; make a new token on a server with `knarr token create` and start this node again with it", err)
	}
	return err
}

func (j *joined) learnAuthorities(ctx context.Context, c client.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	published, err := clusterinfo.ReadAuthorities(ctx, c)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil // a cluster without rotation
	}
	if err != nil {
		return err
	}
	changed, err := j.trust.adopt(published.Bundle)
	if err != nil || !changed {
		return err
	}
	j.log.Info("the cluster's CAs have changed", "generation", published.Generation)
	j.reach.Rotate()
	j.parts.Rotate()
	j.node.check()
	j.kubelet.check()
	return nil
}

// tell writes the annotation with the node's certificates unless its text is the one that was told
// last, and returns the text.
func (j *joined) tell(ctx context.Context, c client.Interface, last string) (string, error) {
	certificate := func(i *identity) (out clusterinfo.NodeCertificate) {
		if pair := i.current.Load(); pair != nil {
			out = clusterinfo.NodeCertificate{Expires: pair.Leaf.NotAfter.UTC(), Issuer: j.trust.issuer(pair.Leaf)}
		}
		return out
	}
	text, err := json.Marshal(clusterinfo.NodeCertificates{
		Authorities: rotation.BundleHash(j.trust.current.Load().bundle), Client: certificate(j.node), Serving: certificate(j.kubelet),
	})
	if err != nil || string(text) == last {
		return last, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{clusterinfo.CertificatesAnnotation: string(text)}}})
	if err != nil {
		return last, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err = client.Patch[*corev1.Node](ctx, c, "", j.cfg.NodeName, types.MergePatchType, patch); err != nil {
		return last, err // also while the Node does not exist yet
	}
	return string(text), nil
}

// replacedError is the reason for joining again when the cluster's CA was replaced.
type replacedError struct{}

func (replacedError) Error() string { return "the cluster's CA was replaced while this node was away" }

// replaced reports whether the server has another CA than this node knows, and the token names it.
// Then the node has missed a rotation, and joins again with the token and its key. A token that was
// used before, and is kept in a unit file, names an older CA.
func (j *joined) replaced(ctx context.Context) bool {
	known, err := parseAuthorities(j.ca)
	if err != nil {
		return false
	}
	u, err := url.Parse(j.server)
	if err != nil {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: known.pool, MinVersion: tls.VersionTLS12}}).DialContext(limited, "tcp", u.Host)
	if err == nil {
		conn.Close()
		return false
	}
	if !errors.As(err, &x509.UnknownAuthorityError{}) {
		return false
	}
	token, err := j.cfg.JoinToken()
	if err != nil || token == "" {
		return false
	}
	_, hash, err := splitToken(token)
	if err != nil || slices.ContainsFunc(known.all, func(c *x509.Certificate) bool { return pki.CertificateHash(c) == hash }) {
		return false
	}
	_, err = pinnedCA(ctx, j.server, hash)
	return err == nil
}
