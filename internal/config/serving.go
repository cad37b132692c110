package config

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Serving configures HTTPS, with upstream's names.
type Serving struct {
	// TLSCert and TLSKey are PEM files with the certificate and its key. Changes need no restart.
	TLSCert string
	TLSKey  string
	// TLSNamed are further certificates for clients that request a name (SNI): CERT,KEY or
	// CERT,KEY:NAME,NAME.
	TLSNamed []string
	// TLSMinVersion is the minimum TLS version; default VersionTLS12.
	TLSMinVersion string
	// TLSCiphers are the cipher suites up to TLS 1.2; default Go's. Those of TLS 1.3 cannot be
	// selected.
	TLSCiphers []string
	// TLSCurves are the key exchanges by number (tls.CurveID); default Go's.
	TLSCurves []int32
}

func (c *Serving) addFlags(f *pflag.FlagSet, without string) {
	f.StringVar(&c.TLSCert, "tls-cert-file", c.TLSCert, "certificate `FILE` for HTTPS, with its chain, PEM (default: "+without+")\nChanges need no restart.")
	f.StringVar(&c.TLSKey, "tls-private-key-file", c.TLSKey, "key `FILE` of that certificate, PEM")
	f.StringArrayVar(&c.TLSNamed, "tls-sni-cert-key", c.TLSNamed, "another certificate by name: `CERT,KEY:NAMES`; can be repeated\nNAMES are separated by commas, such as *.example.com. Without :NAMES the names are those in the certificate.")
	f.StringVar(&c.TLSMinVersion, "tls-min-version", c.TLSMinVersion, "oldest `VERSION` of TLS to accept (default: VersionTLS12)")
	values(f, "tls-min-version", slices.Sorted(maps.Keys(tlsVersions))...)
	f.StringSliceVar(&c.TLSCiphers, "tls-cipher-suites", c.TLSCiphers, "cipher `SUITES` up to TLS 1.2, by their IANA names (default: Go's)")
	values(f, "tls-cipher-suites", slices.Sorted(maps.Keys(cipherSuites()))...)
	f.Int32SliceVar(&c.TLSCurves, "tls-curve-preferences", c.TLSCurves, "key exchanges of TLS, by their IANA `NUMBERS` (default: Go's)\nGo decides the order. Numbers: "+curveNames()+".")
}

var tlsVersions = map[string]uint16{
	"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
}

// curves are the key exchanges that Go supports.
var curves = []tls.CurveID{tls.CurveP256, tls.CurveP384, tls.CurveP521, tls.X25519, tls.SecP256r1MLKEM768, tls.X25519MLKEM768, tls.SecP384r1MLKEM1024}

func curveNames() string {
	names := make([]string, len(curves))
	for i, id := range curves {
		names[i] = fmt.Sprintf("%d (%s)", id, id)
	}
	return strings.Join(names, ", ")
}

// Curves returns TLSCurves, or nil for Go's defaults.
func (c *Serving) Curves() (ids []tls.CurveID) {
	for _, n := range c.TLSCurves {
		ids = append(ids, tls.CurveID(n))
	}
	return ids
}

// cipherSuites returns all of Go's suites, including those that Go considers weak. The
// administrator decides.
func cipherSuites() map[string]uint16 {
	known := map[string]uint16{ // names from before the RFC
		"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	}
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		known[suite.Name] = suite.ID
	}
	return known
}

// TLS returns the minimum version, and the cipher suites or nil for Go's defaults. Validate has
// checked them.
func (c *Serving) TLS() (oldest uint16, suites []uint16) {
	oldest = tls.VersionTLS12
	if c.TLSMinVersion != "" {
		oldest = tlsVersions[c.TLSMinVersion]
	}
	known := cipherSuites()
	for _, name := range c.TLSCiphers {
		suites = append(suites, known[name])
	}
	return oldest, suites
}

// CertKey is a certificate and its key in files, and the names it is for.
type CertKey struct {
	Cert, Key string
	Names     []string
}

// Named parses TLSNamed.
func (c *Serving) Named() ([]CertKey, error) {
	var pairs []CertKey
	for _, text := range c.TLSNamed {
		files, names, named := strings.Cut(text, ":")
		cert, key, _ := strings.Cut(files, ",")
		pair := CertKey{Cert: strings.TrimSpace(cert), Key: strings.TrimSpace(key)}
		if pair.Cert == "" || pair.Key == "" || strings.Contains(pair.Key, ",") {
			return nil, fmt.Errorf("%q is not CERT,KEY or CERT,KEY:NAME,NAME", text)
		}
		if named {
			for name := range strings.SplitSeq(names, ",") {
				pair.Names = append(pair.Names, strings.TrimSpace(name))
			}
		}
		pairs = append(pairs, pair)
	}
	return pairs, nil
}

// http2Ciphers are the suites of which an HTTP/2 server needs at least one (RFC 9113, 9.2.2).
var http2Ciphers = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}

func (c *Serving) validate(bad func(field, value, allowed string)) {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		bad("tls-cert-file", c.TLSCert, "given together with tls-private-key-file")
	}
	if _, err := c.Named(); err != nil {
		bad("tls-sni-cert-key", strings.Join(c.TLSNamed, " "), "files of a certificate and its key, a comma between them; then, after a colon, names: cert.pem,key.pem:*.example.com")
	}
	if _, ok := tlsVersions[c.TLSMinVersion]; !ok && c.TLSMinVersion != "" {
		bad("tls-min-version", c.TLSMinVersion, "one of "+strings.Join(slices.Sorted(maps.Keys(tlsVersions)), ", "))
	}
	for _, n := range c.TLSCurves {
		if !slices.ContainsFunc(curves, func(id tls.CurveID) bool { return int32(id) == n }) {
			bad("tls-curve-preferences", fmt.Sprint(n), "numbers out of "+curveNames())
		}
	}
	known := cipherSuites()
	for _, name := range c.TLSCiphers {
		if _, ok := known[name]; !ok {
			bad("tls-cipher-suites", name, "names out of "+strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			return
		}
	}
	oldest, suites := c.TLS()
	if len(suites) > 0 && oldest < tls.VersionTLS13 && !slices.ContainsFunc(suites, func(id uint16) bool { return slices.Contains(http2Ciphers, id) }) {
		bad("tls-cipher-suites", strings.Join(c.TLSCiphers, ","), "one of "+tls.CipherSuiteName(http2Ciphers[0])+" and "+tls.CipherSuiteName(http2Ciphers[1])+" among them, which HTTP/2 asks for")
	}
}
