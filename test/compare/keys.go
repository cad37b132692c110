package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// keys holds just enough for upstream's components: one CA, one serving certificate, one
// administrator. issue makes more.
type keys struct {
	dir  string
	ca   *x509.Certificate
	sign *ecdsa.PrivateKey
}

func (k *keys) path(name string) string { return filepath.Join(k.dir, name) }

func makeKeys(dir string) (*keys, error) {
	k := &keys{dir: dir}
	var err error
	if k.sign, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	k.ca = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "compare"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	if err := k.write("ca", k.ca, k.sign); err != nil {
		return nil, err
	}
	server := &x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 47, 0, 1), net.ParseIP(address)}, DNSNames: []string{"localhost", "kubernetes.default.svc"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if err := k.issue("server", server); err != nil {
		return nil, err
	}
	return k, k.issue("admin", &x509.Certificate{Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

func (k *keys) issue(name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	template.NotBefore, template.NotAfter, template.KeyUsage = k.ca.NotBefore, k.ca.NotAfter, x509.KeyUsageDigitalSignature
	return k.write(name, template, key)
}

func (k *keys) write(name string, template *x509.Certificate, key *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, template, k.ca, &key.PublicKey, k.sign)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.path(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(k.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600)
}

func (k *keys) kubeconfig(path, server, user string) error {
	config := clientcmdapi.NewConfig()
	ca, err := os.ReadFile(k.path("ca.crt"))
	if err != nil {
		return err
	}
	config.Clusters["compare"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificate: k.path(user + ".crt"), ClientKey: k.path(user + ".key")}
	config.Contexts["compare"] = &clientcmdapi.Context{Cluster: "compare", AuthInfo: "user"}
	config.CurrentContext = "compare"
	return clientcmd.WriteToFile(*config, path)
}
