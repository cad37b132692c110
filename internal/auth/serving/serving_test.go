package serving

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// pair returns a certificate of that common name for the hosts.
func pair(t *testing.T, name string, hosts ...string) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM
}

// server returns Certificates with an own certificate for the cluster's name and one address.
func server(t *testing.T) *Certificates {
	t.Helper()
	own, err := tls.X509KeyPair(pair(t, "own", "kubernetes", "10.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	return New(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &own, nil })
}

func use(t *testing.T, p *Pair, name string, hosts ...string) {
	t.Helper()
	if err := p.Use(pair(t, name, hosts...)); err != nil {
		t.Fatal(err)
	}
}

// reached is a connection that only knows the server's address.
type reached struct {
	net.Conn
	at string
}

func (r reached) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(r.at), Port: 6443} }

// shown returns the common name of the certificate that a client sees, which requests the name at
// the address.
func shown(t *testing.T, c *Certificates, name, at string) string {
	t.Helper()
	cert, err := c.Get(&tls.ClientHelloInfo{ServerName: name, Conn: reached{at: at}})
	if err != nil {
		t.Fatal(err)
	}
	return cert.Leaf.Subject.CommonName
}

// The choice among named certificates is that of upstream's kube-apiserver v1.36.3.
func TestTheCertificateFitsTheRequestedName(t *testing.T) {
	c := server(t)
	if got := shown(t, c, "anything", "10.0.0.1"); got != "own" {
		t.Fatalf("without files: %s", got)
	}
	use(t, c.Rest(), "rest", "api.example.com", "10.0.0.2")
	use(t, c.Named(nil), "implicit", "a.example.com", "b.example.com", "10.0.0.3")
	use(t, c.Named([]string{"*.example.com", "B.example.com."}), "wildcard", "unused")
	use(t, c.Named([]string{"a.example.com", "10.0.0.4"}), "explicit", "unused")
	use(t, c.Named([]string{"*.example.com", "late.org"}), "late", "unused")
	use(t, c.Named(nil), "10.0.0.1", "numbered.org")
	use(t, c.Named(nil), "Common Name, Inc.", "company.org")
	use(t, c.Named(nil), "*.wild.org")
	for name, tc := range map[string]struct{ asked, at, want string }{
		"a name that was given comes before one that a certificate has": {"a.example.com", "10.0.0.9", "explicit"},
		"names are compared without case and final dots":                {"b.EXAMPLE.com.", "10.0.0.9", "wildcard"},
		"a wildcard":                                          {"x.example.com", "10.0.0.9", "wildcard"},
		"a wildcard is one label":                             {"x.y.example.com", "10.0.0.9", "rest"},
		"an address that a named certificate has":             {"", "10.0.0.3", "rest"},
		"the common name of a certificate":                    {"implicit", "10.0.0.9", "implicit"},
		"an address that was given":                           {"", "10.0.0.4", "explicit"},
		"a name comes before the address":                     {"late.org", "10.0.0.4", "late"},
		"any other name":                                      {"other.net", "10.0.0.1", "rest"},
		"any other address":                                   {"", "10.0.0.9", "rest"},
		"a wildcard comes before the rest":                    {"api.example.com", "10.0.0.9", "wildcard"},
		"the address of the certificate for the rest":         {"", "10.0.0.2", "rest"},
		"a name of the cluster that no other certificate has": {"kubernetes", "10.0.0.9", "own"},
		// Although it is a certificate's common name.
		"an address of the cluster":                     {"", "10.0.0.1", "own"},
		"a certificate whose common name is an address": {"numbered.org", "10.0.0.9", "10.0.0.1"},
		"a certificate whose common name is no domain":  {"company.org", "10.0.0.9", "Common Name, Inc."},
		"a common name that is no domain":               {"Common Name, Inc.", "10.0.0.9", "rest"},
		"a common name with a wildcard":                 {"x.wild.org", "10.0.0.9", "*.wild.org"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shown(t, c, tc.asked, tc.at); got != tc.want {
				t.Errorf("%q at %s is shown %q, want %q", tc.asked, tc.at, got, tc.want)
			}
		})
	}
}

func TestANewCertificateReplacesTheOldOne(t *testing.T) {
	c := server(t)
	rest, named := c.Rest(), c.Named(nil)
	use(t, rest, "rest 1", "kubernetes")
	use(t, named, "named 1", "a")
	use(t, named, "named 2", "b")
	use(t, rest, "rest 2", "kubernetes")
	for asked, want := range map[string]string{"a": "rest 2", "b": "named 2", "kubernetes": "rest 2"} {
		if got := shown(t, c, asked, "10.0.0.9"); got != want {
			t.Errorf("%s is shown %q, want %q", asked, got, want)
		}
	}
	certPEM, _ := pair(t, "other", "b")
	_, keyPEM := pair(t, "another", "b")
	if err := named.Use(certPEM, keyPEM); err == nil || shown(t, c, "b", "10.0.0.9") != "named 2" {
		t.Errorf("a key of another certificate is taken: %v", err)
	}
}
