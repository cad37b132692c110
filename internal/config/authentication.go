package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Authentication is who may come in besides the cluster's own certificates and tokens.
type Authentication struct {
	// ClientCA is a file of authorities of client certificates, besides the cluster's own. Its changes count without a restart.
	ClientCA string `json:"clientCA,omitempty"`
	// Config is a file of an AuthenticationConfiguration: issuers of tokens, anonymous requests. Its changes count without a restart.
	Config string `json:"config,omitempty"`
	// Anonymous lets requests without credentials in, as system:anonymous; nil does, too, unless the file says otherwise.
	Anonymous *bool `json:"anonymous,omitempty"`
	// BootstrapTokens lets nodes that join show the tokens of Secrets of kube-system.
	BootstrapTokens bool          `json:"bootstrapTokens"`
	OIDC            OIDC          `json:"oidc,omitzero"`
	RequestHeader   RequestHeader `json:"requestHeader,omitzero"`
}

// OIDC is one issuer of tokens, the older way.
type OIDC struct {
	Issuer         string            `json:"issuer,omitempty"`
	ClientID       string            `json:"clientID,omitempty"`
	CA             string            `json:"ca,omitempty"`
	UsernameClaim  string            `json:"usernameClaim,omitempty"`
	UsernamePrefix string            `json:"usernamePrefix,omitempty"`
	GroupsClaim    string            `json:"groupsClaim,omitempty"`
	GroupsPrefix   string            `json:"groupsPrefix,omitempty"`
	RequiredClaims map[string]string `json:"requiredClaims,omitempty"`
	SigningAlgs    []string          `json:"signingAlgs,omitempty"`
}

// RequestHeader is a proxy that names users in headers.
type RequestHeader struct {
	ClientCA            string   `json:"clientCA,omitempty"`
	AllowedNames        []string `json:"allowedNames,omitempty"`
	UsernameHeaders     []string `json:"usernameHeaders,omitempty"`
	UIDHeaders          []string `json:"uidHeaders,omitempty"`
	GroupHeaders        []string `json:"groupHeaders,omitempty"`
	ExtraHeaderPrefixes []string `json:"extraHeaderPrefixes,omitempty"`
}

func defaultAuthentication() Authentication {
	return Authentication{BootstrapTokens: true, OIDC: defaultOIDC()}
}

func defaultOIDC() OIDC { return OIDC{UsernameClaim: "sub", SigningAlgs: []string{"RS256"}} }

func (c *Authentication) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.ClientCA, "client-ca-file", c.ClientCA, "authorities of client certificates besides the cluster's own, PEM file; its changes count without a restart")
	f.StringVar(&c.Config, "authentication-config", c.Config, "file with issuers of JSON Web Tokens and rules for anonymous requests (AuthenticationConfiguration); its changes count without a restart")
	f.Var(&optionalBool{&c.Anonymous}, "anonymous-auth", "let requests without credentials in, as system:anonymous (default true)")
	f.Lookup("anonymous-auth").NoOptDefVal = "true"
	f.BoolVar(&c.BootstrapTokens, "enable-bootstrap-token-auth", c.BootstrapTokens, "take the tokens that nodes join with, Secrets of type bootstrap.kubernetes.io/token in kube-system")
	o := &c.OIDC
	f.StringVar(&o.Issuer, "oidc-issuer-url", o.Issuer, "issuer of JSON Web Tokens, HTTPS")
	f.StringVar(&o.ClientID, "oidc-client-id", o.ClientID, "audience that its tokens must be meant for")
	f.StringVar(&o.CA, "oidc-ca-file", o.CA, "authorities of its HTTPS certificate, PEM file (default: the machine's)")
	f.StringVar(&o.UsernameClaim, "oidc-username-claim", o.UsernameClaim, "claim with the user's name")
	f.StringVar(&o.UsernamePrefix, "oidc-username-prefix", o.UsernamePrefix, "put before the name; '-' is nothing (default: ISSUER#, unless the claim is email)")
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", o.GroupsClaim, "claim with the user's groups, a string or a list")
	f.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", o.GroupsPrefix, "put before each group")
	f.StringToStringVar(&o.RequiredClaims, "oidc-required-claim", o.RequiredClaims, "KEY=VALUE that a token must claim; may be repeated")
	f.StringSliceVar(&o.SigningAlgs, "oidc-signing-algs", o.SigningAlgs, "algorithms that its tokens may be signed with: RS256 … PS512, ES256 … ES512")
	h := &c.RequestHeader
	f.StringVar(&h.ClientCA, "requestheader-client-ca-file", h.ClientCA, "authorities of proxies that name users in headers, PEM file")
	f.StringSliceVar(&h.AllowedNames, "requestheader-allowed-names", h.AllowedNames, "common names of those proxies' certificates (default: any)")
	f.StringSliceVar(&h.UsernameHeaders, "requestheader-username-headers", h.UsernameHeaders, "headers with the user's name; X-Remote-User is common")
	f.StringSliceVar(&h.UIDHeaders, "requestheader-uid-headers", h.UIDHeaders, "headers with the user's UID; X-Remote-Uid is common")
	f.StringSliceVar(&h.GroupHeaders, "requestheader-group-headers", h.GroupHeaders, "headers with the user's groups; X-Remote-Group is common")
	f.StringSliceVar(&h.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", h.ExtraHeaderPrefixes, "prefixes of headers with more about the user; X-Remote-Extra- is common")
}

// optionalBool is a flag that may be neither true nor false.
type optionalBool struct{ value **bool }

func (b *optionalBool) String() string {
	if b.value == nil || *b.value == nil {
		return ""
	}
	return strconv.FormatBool(**b.value)
}

func (b *optionalBool) Set(text string) error {
	value, err := strconv.ParseBool(text)
	if err == nil {
		*b.value = &value
	}
	return err
}

func (b *optionalBool) Type() string { return "bool" }

// Set tells whether an issuer is configured.
func (o *OIDC) Set() bool {
	d := defaultOIDC()
	return o.Issuer != "" || o.ClientID != "" || o.CA != "" || o.UsernameClaim != d.UsernameClaim || o.UsernamePrefix != "" || o.GroupsClaim != "" ||
		o.GroupsPrefix != "" || len(o.RequiredClaims) > 0 || !slices.Equal(o.SigningAlgs, d.SigningAlgs)
}

func (c *Authentication) validate(bad func(field, value, allowed string)) {
	if c.Config != "" && c.OIDC.Set() {
		bad("authentication-config", c.Config, "no oidc-* flags beside it: authentication-config file and oidc-* flags are mutually exclusive")
	}
	if o := &c.OIDC; o.Set() && (o.Issuer == "" || o.ClientID == "") {
		bad("oidc-issuer-url", o.Issuer, "oidc-issuer-url and oidc-client-id specified together when any oidc-* flags are set")
	}
	h := &c.RequestHeader
	for name, list := range map[string][]string{
		"requestheader-username-headers": h.UsernameHeaders, "requestheader-uid-headers": h.UIDHeaders,
		"requestheader-group-headers": h.GroupHeaders, "requestheader-extra-headers-prefix": h.ExtraHeaderPrefixes,
	} {
		for _, header := range list {
			if strings.TrimSpace(header) == "" {
				bad(name, fmt.Sprint(list), "names of headers, none of them empty")
			}
		}
	}
}
