package settings

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
)

// fault is an invalid value of a field.
type fault struct{ field, value, allowed string }

func (f *fault) Error() string {
	return fmt.Sprintf("%s: %s is not usable: %s", f.field, f.value, f.allowed)
}

var tlsVersions = map[string]uint16{
	"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
}

// TLS returns the settings for the node's API. Without tlsMinVersion, lowest is the minimum
// version. Nil lists select Go's defaults.
func (s *Settings) TLS(lowest uint16) (version uint16, suites []uint16, curves []tls.CurveID, err error) {
	if version = lowest; s.TLSMinVersion != "" {
		version = tlsVersions[s.TLSMinVersion]
	}
	for _, name := range s.TLSCipherSuites {
		id, ok := cipherSuite(name)
		if !ok {
			return 0, nil, nil, &fault{"tlsCipherSuites", quoted(name), "out of " + strings.Join(cipherSuites(), ", ")}
		}
		suites = append(suites, id)
	}
	for _, id := range s.TLSCurvePreferences {
		curve := tls.CurveID(id)
		if id <= 0 || id > 1<<16-1 || !slices.Contains(supportedCurves, curve) {
			return 0, nil, nil, &fault{"tlsCurvePreferences", fmt.Sprint(id), fmt.Sprintf("out of %d", supportedCurves)}
		}
		curves = append(curves, curve)
	}
	return version, suites, curves, nil
}

var supportedCurves = []tls.CurveID{tls.CurveP256, tls.CurveP384, tls.CurveP521, tls.X25519, tls.X25519MLKEM768}

func cipherSuite(name string) (uint16, bool) {
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		if suite.Name == name {
			return suite.ID, true
		}
	}
	return 0, false
}

func cipherSuites() (names []string) {
	for _, suite := range tls.CipherSuites() {
		names = append(names, suite.Name)
	}
	return names
}
