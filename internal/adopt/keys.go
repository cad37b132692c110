package adopt

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/knarr-project/knarr/internal/auth/pki"
)

// authority is a CA of the cluster: its certificates, the signer's first, and its key.
type authority struct {
	certPEM, keyPEM []byte
	certs           []*x509.Certificate
}

// signed reports whether one of the authority's certificates has signed c.
func (a *authority) signed(c *x509.Certificate) bool {
	for _, ca := range a.certs {
		if c.CheckSignatureFrom(ca) == nil {
			return true
		}
	}
	return false
}

// readAuthority reads a CA and checks that its key belongs to it.
func (m *machine) readAuthority(certFile, keyFile string, now time.Time) (*authority, error) {
	a := &authority{}
	var err error
	if a.certPEM, err = m.read(certFile); err != nil {
		return nil, err
	}
	if !m.exists(keyFile) {
		return nil, fmt.Errorf("%s is missing: the cluster has an external CA, and knarr signs certificates itself. Put the key there for the adoption", m.host(keyFile))
	}
	if a.keyPEM, err = m.read(keyFile); err != nil {
		return nil, err
	}
	if a.certs, err = cert.ParseCertsPEM(a.certPEM); err != nil {
		return nil, fmt.Errorf("%s: %w", m.host(certFile), err)
	}
	key, err := pki.ParseSigner(a.keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.host(keyFile), err)
	}
	for _, c := range a.certs {
		if !pki.SamePublicKey(c.PublicKey, key.Public()) {
			continue
		}
		if !c.IsCA {
			return nil, fmt.Errorf("%s: certificate %q is not a CA", m.host(certFile), c.Subject.CommonName)
		}
		if now.After(c.NotAfter) {
			return nil, fmt.Errorf("%s expired on %s: renew the CA with kubeadm's procedure first", m.host(certFile), c.NotAfter.Format(time.RFC3339))
		}
		return a, nil
	}
	return nil, fmt.Errorf("%s does not belong to %s", m.host(keyFile), m.host(certFile))
}

// keys are the cluster's keys, with the names that knarr and kubeadm give their files.
type keys struct {
	ca, frontProxy *authority
	etcd           *authority // nil: knarr makes one for its own members
	saKey, saPub   []byte
	names          []string // of the API server's certificate
}

// readKeys reads the keys that the manifests name.
func (m *machine) readKeys(api, manager, etcd *component, now time.Time) (*keys, error) {
	k := &keys{}
	var errs []error
	keep := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	k.ca, err = m.readAuthority(
		manager.onHost(manager.get("cluster-signing-cert-file", "/etc/kubernetes/pki/ca.crt")),
		manager.onHost(manager.get("cluster-signing-key-file", "/etc/kubernetes/pki/ca.key")), now)
	keep(err)
	front := api.onHost(api.get("requestheader-client-ca-file", "/etc/kubernetes/pki/front-proxy-ca.crt"))
	k.frontProxy, err = m.readAuthority(front, path.Join(path.Dir(front), "front-proxy-ca.key"), now)
	keep(err)
	peers := etcd.onHost(etcd.get("peer-trusted-ca-file", "/etc/kubernetes/pki/etcd/ca.crt"))
	if key := path.Join(path.Dir(peers), "ca.key"); m.exists(peers) && m.exists(key) {
		k.etcd, err = m.readAuthority(peers, key, now)
		keep(err)
	}
	keep(m.readAccounts(k, api))
	served := api.onHost(api.get("tls-cert-file", "/etc/kubernetes/pki/apiserver.crt"))
	if data, err := m.read(served); err != nil {
		keep(err)
	} else if certs, err := cert.ParseCertsPEM(data); err != nil {
		keep(fmt.Errorf("%s: %w", m.host(served), err))
	} else {
		k.names = append(k.names, certs[0].DNSNames...)
		for _, ip := range certs[0].IPAddresses {
			k.names = append(k.names, ip.String())
		}
	}
	return k, errors.Join(errs...)
}

// readAccounts reads the service account keys. Tokens of all keys stay valid.
func (m *machine) readAccounts(k *keys, api *component) error {
	file := api.onHost(api.get("service-account-signing-key-file", "/etc/kubernetes/pki/sa.key"))
	data, err := m.read(file)
	if err != nil {
		return err
	}
	signer, err := pki.ParseSigner(data)
	if err != nil {
		return fmt.Errorf("%s: %w", m.host(file), err)
	}
	k.saKey = data
	if k.saPub, err = pki.PublicKeyPEM(signer.Public()); err != nil {
		return fmt.Errorf("%s: %w", m.host(file), err)
	}
	for _, inside := range api.all("service-account-key-file") {
		file := api.onHost(inside)
		data, err := m.read(file)
		if err != nil {
			return err
		}
		public, err := keyutil.ParsePublicKeysPEM(data)
		if err != nil {
			return fmt.Errorf("%s: %w", m.host(file), err)
		}
		for _, key := range public {
			one, err := pki.PublicKeyPEM(key)
			if err != nil {
				return fmt.Errorf("%s: %w", m.host(file), err)
			}
			if !bytes.Contains(k.saPub, one) {
				k.saPub = append(k.saPub, one...)
			}
		}
	}
	return nil
}

// files returns the content of DATA-DIR/pki.
func (k *keys) files() map[string][]byte {
	out := map[string][]byte{
		"ca.crt": k.ca.certPEM, "ca.key": k.ca.keyPEM,
		"front-proxy-ca.crt": k.frontProxy.certPEM, "front-proxy-ca.key": k.frontProxy.keyPEM,
		"sa.key": k.saKey, "sa.pub": k.saPub,
	}
	if k.etcd != nil {
		out["etcd/ca.crt"], out["etcd/ca.key"] = k.etcd.certPEM, k.etcd.keyPEM
	}
	return out
}
