package config

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceAccounts configures the tokens of service accounts: issuers, keys, lifetimes.
type ServiceAccounts struct {
	// Issuers are URLs, or names without a colon. The first one issues tokens; tokens of the others
	// are accepted. Default: https://kubernetes.default.svc.CLUSTER-DOMAIN.
	Issuers []string
	// KeyFiles are PEM files of keys that verify tokens. Default: those of the data folder
	// (pki/sa.pub).
	KeyFiles []string
	// SigningKeyFile is a PEM file with the signing key. Default: that of the data folder.
	SigningKeyFile string
	// SigningEndpoint is the socket of a process that signs instead (KEP-740). Only that process's
	// keys are valid then.
	SigningEndpoint string
	// JWKSURI is the https URL of the keys that is published to verifiers. Default: /openid/v1/jwks
	// of the first issuer.
	JWKSURI string
	// MaxExpiration limits the requested lifetime. 0 means no limit.
	MaxExpiration metav1.Duration
	// ExtendExpiration gives tokens a lifetime of a year, for pods that read theirs only once.
	ExtendExpiration bool
	// Audiences are the accepted audiences of tokens for this API server. Default: the issuers.
	Audiences []string
}

func defaultServiceAccounts() ServiceAccounts { return ServiceAccounts{ExtendExpiration: true} }

func (c *ServiceAccounts) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&c.Issuers, "service-account-issuer", c.Issuers, "`URL` of the tokens' issuer; can be repeated (default: https://kubernetes.default.svc.CLUSTER-DOMAIN)\nThe first one issues tokens. Tokens of the others are accepted too.")
	f.StringArrayVar(&c.KeyFiles, "service-account-key-file", c.KeyFiles, "`FILE` of keys that verify the tokens, PEM; can be repeated (default: DATA-DIR/pki/sa.pub)")
	f.StringVar(&c.SigningKeyFile, "service-account-signing-key-file", c.SigningKeyFile, "key `FILE` that signs the tokens, PEM (default: DATA-DIR/pki/sa.key)")
	f.StringVar(&c.SigningEndpoint, "service-account-signing-endpoint", c.SigningEndpoint, "`SOCKET` of a process that signs the tokens instead (KEP-740, k8s.io/externaljwt)\nOnly the keys that this process names are accepted then.")
	f.StringVar(&c.JWKSURI, "service-account-jwks-uri", c.JWKSURI, "HTTPS `URL` of the keys in the discovery document (default: /openid/v1/jwks of the issuer)")
	f.DurationVar(&c.MaxExpiration.Duration, "service-account-max-token-expiration", c.MaxExpiration.Duration, "longest lifetime of an issued token, 1h or more; 0 sets no limit")
	f.BoolVar(&c.ExtendExpiration, "service-account-extend-token-expiration", c.ExtendExpiration, "let pods' tokens live a year, for programs that read them only once\nMetrics and audit events count the use of tokens that were due for renewal.")
	f.StringSliceVar(&c.Audiences, "api-audiences", c.Audiences, "`AUDIENCES` of tokens for this API server (default: the issuers)")
}

func (c *ServiceAccounts) validate(bad func(field, value, allowed string)) {
	for i, issuer := range c.Issuers {
		_, err := url.Parse(issuer)
		switch {
		case issuer == "" || strings.Contains(issuer, ":") && err != nil:
			bad("service-account-issuer", issuer, "a URL such as https://issuer.example.com")
		case slices.Contains(c.Issuers[:i], issuer):
			bad("service-account-issuer", issuer, "each issuer once")
		}
	}
	if c.SigningEndpoint != "" && (c.SigningKeyFile != "" || len(c.KeyFiles) > 0) {
		bad("service-account-signing-endpoint", c.SigningEndpoint, "no service-account-signing-key-file or service-account-key-file beside it: they are mutually exclusive")
	}
	if u, err := url.Parse(c.JWKSURI); c.JWKSURI != "" && (err != nil || u.Scheme != "https") {
		bad("service-account-jwks-uri", c.JWKSURI, "an https URL")
	}
	if d := c.MaxExpiration.Duration; d != 0 && (d < time.Hour || d > (1<<32)*time.Second) {
		bad("service-account-max-token-expiration", d.String(), "0, or between 1 hour and 2^32 seconds")
	}
}
