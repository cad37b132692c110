package config

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceAccounts are the tokens of service accounts: who issues them, with which keys, for how long.
type ServiceAccounts struct {
	// Issuers are URLs, or names without a colon: tokens are issued by the first one, those of the others are accepted.
	// Default: https://kubernetes.default.svc.CLUSTER-DOMAIN.
	Issuers []string `json:"issuers,omitempty"`
	// KeyFiles are PEM files of keys that tokens may be signed with. Default: those of the data folder (pki/sa.pub).
	KeyFiles []string `json:"keyFiles,omitempty"`
	// SigningKeyFile is the key that signs, instead of that of the data folder, PEM.
	SigningKeyFile string `json:"signingKeyFile,omitempty"`
	// SigningEndpoint is the socket of a process that signs instead (KEP-740), whose keys alone count then.
	SigningEndpoint string `json:"signingEndpoint,omitempty"`
	// JWKSURI is where verifiers are told to find the keys, https. Default: /openid/v1/jwks of the first issuer.
	JWKSURI string `json:"jwksURI,omitempty"`
	// MaxExpiration bounds what may be asked for. 0 does not.
	MaxExpiration metav1.Duration `json:"maxTokenExpiration,omitzero"`
	// ExtendExpiration lets the tokens of pods that read theirs only once live for a year.
	ExtendExpiration bool `json:"extendTokenExpiration"`
	// Audiences are what tokens for this API server may be meant for. Default: the issuers.
	Audiences []string `json:"apiAudiences,omitempty"`
}

func defaultServiceAccounts() ServiceAccounts { return ServiceAccounts{ExtendExpiration: true} }

func (c *ServiceAccounts) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&c.Issuers, "service-account-issuer", c.Issuers, "issuer of service accounts' tokens, a URL; may be repeated: the first one issues, tokens of the others are accepted (default: https://kubernetes.default.svc.CLUSTER-DOMAIN)")
	f.StringArrayVar(&c.KeyFiles, "service-account-key-file", c.KeyFiles, "PEM file of keys that these tokens may be signed with; may be repeated (default: DATA-DIR/pki/sa.pub)")
	f.StringVar(&c.SigningKeyFile, "service-account-signing-key-file", c.SigningKeyFile, "PEM file of the key that signs these tokens (default: DATA-DIR/pki/sa.key)")
	f.StringVar(&c.SigningEndpoint, "service-account-signing-endpoint", c.SigningEndpoint, "socket of a process that signs these tokens instead, and says which keys count (k8s.io/externaljwt)")
	f.StringVar(&c.JWKSURI, "service-account-jwks-uri", c.JWKSURI, "where the discovery document says the keys are, https (default: /openid/v1/jwks of the issuer)")
	f.DurationVar(&c.MaxExpiration.Duration, "service-account-max-token-expiration", c.MaxExpiration.Duration, "longest time that a token is issued for; 0 does not bound it")
	f.BoolVar(&c.ExtendExpiration, "service-account-extend-token-expiration", c.ExtendExpiration, "let pods' tokens live for a year, for programs that read theirs only once; metrics and audit events tell of those that were due")
	f.StringSliceVar(&c.Audiences, "api-audiences", c.Audiences, "what tokens for this API server may be meant for (default: the issuers)")
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
