// Package kube starts knarr as upstream's integration tests of the whole API server (k8s.io/kubernetes/test/integration) want their server. Its folders
// testing and framework hold the two files that take the place of upstream's.
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

// renamed are flags that are called otherwise here.
var renamed = map[string]string{
	"service-cluster-ip-range": "service-cidr",
	"service-node-port-range":  "node-port-range",
}

// ignored are flags that tests set for upstream's own sake: where its store and its certificates are, and how it goes about what clients do not see.
var ignored = []string{
	"allow-privileged", "authentication-skip-lookup", "authentication-token-webhook-version", "authorization-webhook-version", "bind-address", "cert-dir", "delete-collection-workers", "enable-aggregator-routing", "enable-bootstrap-token-auth",
	"endpoint-reconciler-type", "external-hostname", "kubelet-preferred-address-types", "lease-reuse-duration-seconds", "proxy-client-cert-file", "proxy-client-key-file",
	"runtime-config-emulation-forward-compatible", "secure-port", "service-account-lookup", "storage-backend", "storage-media-type", "v", "watch-cache", "watch-cache-sizes",
}

// NewOptions are upstream's, with its gates of features as they are at this moment.
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

// FlagSet has all flags of upstream's server; they are bound to the options.
func FlagSet(opts *options.ServerRunOptions) *pflag.FlagSet {
	set := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, named := range opts.Flags().FlagSets {
		set.AddFlagSet(named)
	}
	return set
}

// Flags are those of `knarr apiserver` which mean what differs in a set from upstream's defaults, and where its defaults are others than ours. IsMissing tells of the error whether that is what knarr does not have.
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
		if inner := strings.Trim(value, "[]"); inner != value { // a list that does not say that it is one
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

// missingError tells what knarr does not have.
type missingError string

func (m missingError) Error() string { return "knarr is not there with " + string(m) }

// IsMissing says whether the server was not started because knarr does not have what it should be started with.
func IsMissing(err error) bool {
	var missing missingError
	return errors.As(err, &missing)
}

// otherDefaults are the flags that make of our defaults upstream's.
func otherDefaults(set *pflag.FlagSet) (flags []string) {
	if set.Lookup("authorization-mode").Value.String() == "[]" && set.Lookup("authorization-config").Value.String() == "" {
		flags = append(flags, "--authorization-mode=AlwaysAllow")
	}
	if !strings.Contains(set.Lookup("enable-admission-plugins").Value.String()+set.Lookup("disable-admission-plugins").Value.String(), "NodeRestriction") {
		flags = append(flags, "--disable-admission-plugins=NodeRestriction")
	}
	return flags
}

// changedGates are those of a flag's that are not as they are by default.
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

// switched is what of --runtime-config knarr takes, which serves what it has unless that is turned off, and what of it knarr does not have: versions that are off by default.
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

// Issuer is that of the tokens of service accounts in upstream's harnesses.
const Issuer = "https://foo.bar.example.com"

// SigningKey makes the options sign service accounts' tokens with a key in the folder.
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

// AuthorityOf writes the certificate of an authority that may be there already.
func AuthorityOf(path, name string, certificate *x509.Certificate, key *rsa.PrivateKey) (err error) {
	if certificate == nil {
		if certificate, err = cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key); err != nil {
			return err
		}
	}
	return os.WriteFile(path, testutil.EncodeCertPEM(certificate), 0o644)
}

// Start starts knarr as the options are, which a flag set is bound to, and tells them where it and its store are.
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

// Prefix is what upstream's tests put behind a slash to have a key's beginning.
const Prefix = "registry"
