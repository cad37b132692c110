// Package kube starts knarr for upstream's integration tests of the whole API server
// (k8s.io/kubernetes/test/integration). Its folders testing and framework hold the two files that
// replace upstream's.
package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/knarr-project/knarr/test/integration/harness"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane"
	testutil "k8s.io/kubernetes/test/utils"
)

// renamed lists flags with another name in knarr.
var renamed = map[string]string{
	"service-cluster-ip-range": "service-cidr",
	"service-node-port-range":  "node-port-range",
}

// ignored lists flags that only matter to upstream's server: where its store and certificates are,
// and internals that clients do not see.
var ignored = []string{
	"allow-privileged", "authentication-skip-lookup", "authentication-token-webhook-version", "authorization-webhook-version", "bind-address", "cert-dir", "delete-collection-workers", "enable-aggregator-routing", "enable-bootstrap-token-auth",
	"endpoint-reconciler-type", "external-hostname", "kubelet-preferred-address-types", "lease-reuse-duration-seconds", "proxy-client-cert-file", "proxy-client-key-file",
	"runtime-config-emulation-forward-compatible", "secure-port", "service-account-lookup", "storage-backend", "storage-media-type", "v", "watch-cache", "watch-cache-sizes",
}

// NewOptions returns upstream's options with the current feature gates.
func NewOptions() *options.ServerRunOptions {
	opts := options.NewServerRunOptions()
	registry := basecompatibility.NewComponentGlobalsRegistry()
	gates := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if err := registry.Register(basecompatibility.DefaultKubeComponent, compatibility.DefaultKubeEffectiveVersionForTest(), gates); err != nil {
		panic(err)
	}
	opts.GenericServerRunOptions.ComponentGlobalsRegistry = registry
	return opts
}

// FlagSet returns all flags of upstream's server, bound to the options.
func FlagSet(opts *options.ServerRunOptions) *pflag.FlagSet {
	set := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, named := range opts.Flags().FlagSets {
		set.AddFlagSet(named)
	}
	return set
}

// Flags translates a flag set into flags of `knarr apiserver`: its differences from upstream's
// defaults, and upstream's defaults that are not ours. IsMissing(err) reports that knarr lacks
// something.
func Flags(set *pflag.FlagSet) (flags []string, err error) {
	known, err := harness.KnownFlags()
	if err != nil {
		return nil, err
	}
	defaults := FlagSet(NewOptions())
	skip := map[string]bool{}
	for _, name := range ignored {
		skip[name] = true
	}
	var missing []string
	set.VisitAll(func(f *pflag.Flag) {
		value, list := f.Value.String(), f.Value.Type() == "stringArray"
		if skip[f.Name] || strings.HasPrefix(f.Name, "etcd-") || value == defaults.Lookup(f.Name).Value.String() && f.Name != "feature-gates" {
			return
		}
		name := f.Name
		if other := renamed[name]; other != "" {
			name = other
		}
		values := []string{value}
		if inner := strings.Trim(value, "[]"); inner != value { // a list whose type does not say so
			values = []string{strings.Join(strings.Fields(inner), ",")}
		}
		if slice, ok := f.Value.(pflag.SliceValue); ok {
			values = slice.GetSlice()
			if !list {
				values = []string{strings.Join(values, ",")}
			}
		}
		switch {
		case name == "feature-gates":
			missing = append(missing, changedGates(values)...)
			return
		case name == "runtime-config":
			off, on := switched(value)
			missing = append(missing, on...)
			if values = []string{off}; off == "" {
				return
			}
		case !known[name]:
			missing = append(missing, "--"+name+"="+value)
			return
		}
		for _, v := range values {
			flags = append(flags, "--"+name+"="+v)
		}
	})
	if len(missing) > 0 {
		return nil, missingError(strings.Join(missing, " "))
	}
	return append(flags, otherDefaults(set)...), nil
}

// missingError names something that knarr does not have.
type missingError string

func (m missingError) Error() string { return "knarr does not have " + string(m) }

// IsMissing reports whether the server was not started because knarr lacks something that the
// options need.
func IsMissing(err error) bool {
	var missing missingError
	return errors.As(err, &missing)
}

// otherDefaults returns the flags that replace our defaults by upstream's.
func otherDefaults(set *pflag.FlagSet) (flags []string) {
	if set.Lookup("authorization-mode").Value.String() == "[]" && set.Lookup("authorization-config").Value.String() == "" {
		flags = append(flags, "--authorization-mode=AlwaysAllow")
	}
	if !strings.Contains(set.Lookup("enable-admission-plugins").Value.String()+set.Lookup("disable-admission-plugins").Value.String(), "NodeRestriction") {
		flags = append(flags, "--disable-admission-plugins=NodeRestriction")
	}
	return flags
}

// changedGates returns the gates in a flag that differ from their defaults.
func changedGates(values []string) (changed []string) {
	for _, pair := range strings.Split(strings.Join(values, ","), ",") {
		name, value, _ := strings.Cut(strings.TrimPrefix(pair, "kube:"), "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			continue
		}
		if _, is := utilfeature.DefaultMutableFeatureGate.GetAll()[featuregate.Feature(name)]; !is || utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(name)) != on {
			changed = append(changed, "feature gate "+pair)
		}
	}
	return changed
}

// switched translates --runtime-config. knarr serves all it has unless it is turned off, so only
// those parts are passed on. missing lists versions that knarr does not have: those that are off by
// default.
func switched(config string) (off string, missing []string) {
	var list []string
	for _, pair := range strings.Split(config, ",") {
		name, value, _ := strings.Cut(pair, "=")
		gv, err := schema.ParseGroupVersion(name)
		switch {
		case value == "false":
			list = append(list, pair)
		case err == nil && gv.Group != "api" && !controlplane.DefaultAPIResourceConfigSource().ResourceEnabled(gv.WithResource("any")):
			missing = append(missing, "--runtime-config="+pair)
		}
	}
	return strings.Join(list, ","), missing
}

// Issuer is the issuer of service account tokens in upstream's harnesses.
const Issuer = "https://foo.bar.example.com"

// SigningKey sets a signing key for service account tokens, which it writes to the folder.
func SigningKey(opts *options.ServerRunOptions, dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "accounts.key")
	opts.ServiceAccountSigningKeyFile = path
	opts.Authentication.ServiceAccounts.Issuers = []string{Issuer}
	opts.Authentication.ServiceAccounts.KeyFiles = []string{path}
	return os.WriteFile(path, text, 0o600)
}

// Authority writes the certificate of a new authority to a file.
func Authority(path, name string) error {
	key, err := testutil.NewPrivateKey()
	if err != nil {
		return err
	}
	return AuthorityOf(path, name, nil, key)
}

// AuthorityOf writes the certificate of the authority, or of a new one if it is nil.
func AuthorityOf(path, name string, certificate *x509.Certificate, key *rsa.PrivateKey) (err error) {
	if certificate == nil {
		if certificate, err = cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key); err != nil {
			return err
		}
	}
	return os.WriteFile(path, testutil.EncodeCertPEM(certificate), 0o644)
}

// Start starts knarr with the options, to which the flag set is bound, and writes the locations of
// knarr and its store back to them.
func Start(opts *options.ServerRunOptions, set *pflag.FlagSet) (*harness.Server, error) {
	flags, err := Flags(set)
	if err != nil {
		return nil, err
	}
	settings := harness.Settings{Tokens: opts.Authentication.TokenFile.TokenFile}
	for _, url := range opts.Etcd.StorageConfig.Transport.ServerList {
		if harness.IsStore(url) {
			settings.Store = url
		}
	}
	for _, f := range flags {
		if !strings.HasPrefix(f, "--token-auth-file=") {
			settings.Flags = append(settings.Flags, f)
		}
	}
	server, err := harness.Start(settings)
	if err != nil {
		return nil, err
	}
	opts.Etcd.StorageConfig.Transport.ServerList = []string{server.Etcd}
	opts.Etcd.StorageConfig.Prefix = Prefix
	opts.SecureServing.ServerCert.CertKey.CertFile = server.CAFile
	opts.SecureServing.BindPort = server.Port
	return server, nil
}

// Prefix is the prefix that upstream's tests put after a slash to form keys.
const Prefix = "registry"
