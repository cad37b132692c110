package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Kinds of entries in an inventory.
const (
	KindCA         = "CA"
	KindLeaf       = "certificate"
	KindKubeconfig = "kubeconfig"
	KindTokenKey   = "token key"
)

// Entry is one thing that expires or is rotated.
type Entry struct {
	// Name is the path below the folder of keys without extension, or a kubeconfig's whole path.
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Subject string `json:"subject,omitempty"`
	// Key is the hash of the public key, Issuer that of the CA's key if the CA is in the folder.
	Key    string `json:"key,omitempty"`
	Issuer string `json:"issuer,omitempty"`
	// Made is when it was made, Expires when it ends; both may be zero.
	Made    time.Time `json:"made,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	// Signs means that new certificates or tokens are signed with it.
	Signs bool `json:"signs,omitempty"`
	// Renewed means that knarr renews it by itself.
	Renewed bool `json:"renewed,omitempty"`
	// Error is why it could not be read.
	Error string `json:"error,omitempty"`
}

// Inventory lists the certificates and keys in a folder of keys, of a server or of a joined node,
// and those in the kubeconfigs. It reads files only.
func Inventory(dir string, kubeconfigs ...string) ([]Entry, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasPrefix(d.Name(), ".") {
			files = append(files, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out, leaves []Entry
	var authorities []*x509.Certificate
	var certificates []*x509.Certificate // of leaves
	for _, path := range files {
		name := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(path, dir+"/"), ".crt"), ".pem")
		switch {
		case filepath.Base(path) == "sa.pub":
			out = append(out, tokenKeys(path)...)
		case strings.HasSuffix(path, "-cross.crt"):
		case strings.HasSuffix(path, ".crt"), strings.HasSuffix(path, ".pem"):
			all, err := cert.CertsFromFile(path)
			if err != nil {
				leaves, certificates = append(leaves, Entry{Name: name, Kind: KindLeaf, Error: err.Error()}), append(certificates, nil)
				continue
			}
			if !all[0].IsCA {
				leaves, certificates = append(leaves, entry(name, KindLeaf, all[0])), append(certificates, all[0])
				continue
			}
			for _, c := range all {
				e := entry(name, KindCA, c)
				e.Renewed, e.Signs = false, keyIn(strings.TrimSuffix(path, ".crt")+".key", c)
				out, authorities = append(out, e), append(authorities, c)
			}
		}
	}
	for _, path := range kubeconfigs {
		e, c := kubeconfigEntry(path)
		if e.Name != "" {
			leaves, certificates = append(leaves, e), append(certificates, c)
		}
	}
	for i, c := range certificates {
		if c != nil {
			leaves[i].Issuer = issuer(c, authorities)
		}
	}
	return append(out, leaves...), nil
}

func issuer(c *x509.Certificate, authorities []*x509.Certificate) string {
	if at := slices.IndexFunc(authorities, func(a *x509.Certificate) bool { return c.CheckSignatureFrom(a) == nil }); at >= 0 {
		return CertificateHash(authorities[at])
	}
	return ""
}

func entry(name, kind string, c *x509.Certificate) Entry {
	return Entry{Name: name, Kind: kind, Subject: c.Subject.String(), Key: CertificateHash(c), Made: c.NotBefore, Expires: c.NotAfter, Renewed: true}
}

// keyIn reports whether the file holds the certificate's key.
func keyIn(path string, c *x509.Certificate) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	key, err := ParseSigner(data)
	return err == nil && SamePublicKey(c.PublicKey, key.Public())
}

// tokenKeys lists the keys of sa.pub. The first one signs. A key has no date; the file's is that of
// the last rotation.
func tokenKeys(path string) []Entry {
	const name = "sa"
	public, err := keyutil.PublicKeysFromFile(path)
	if err != nil {
		return []Entry{{Name: name, Kind: KindTokenKey, Error: err.Error()}}
	}
	signer, err := ReadSigningKey(strings.TrimSuffix(path, ".pub") + ".key")
	if err != nil {
		return []Entry{{Name: name, Kind: KindTokenKey, Error: err.Error()}}
	}
	var out []Entry
	for _, key := range public {
		e := Entry{Name: name, Kind: KindTokenKey, Signs: SamePublicKey(key, signer.Signer.Public())}
		if e.Key, err = KeyHash(key); err != nil {
			e.Error = err.Error()
		}
		if info, err := os.Stat(strings.TrimSuffix(path, ".pub") + ".key"); err == nil && e.Signs {
			e.Made = info.ModTime().UTC()
		}
		out = append(out, e)
	}
	return out
}

// kubeconfigEntry returns the client certificate in a kubeconfig, and no entry if there is none.
func kubeconfigEntry(path string) (Entry, *x509.Certificate) {
	config, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{Name: path, Kind: KindKubeconfig, Error: err.Error()}, nil
	}
	for _, user := range config.AuthInfos {
		if len(user.ClientCertificateData) == 0 {
			continue
		}
		pair, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
		if err != nil {
			return Entry{Name: path, Kind: KindKubeconfig, Error: err.Error()}, nil
		}
		return entry(path, KindKubeconfig, pair.Leaf), pair.Leaf
	}
	return Entry{}, nil
}
