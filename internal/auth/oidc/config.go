package oidc

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/knarr-project/knarr/internal/cel"
)

// Configuration is the type of the configuration file.
type Configuration = apiserverconfig.AuthenticationConfiguration

// Parse decodes a configuration and validates it.
func Parse(data []byte) (*Configuration, error) {
	if len(data) == 0 {
		return nil, errors.New("empty config data")
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	obj, err := runtime.Decode(codecs.UniversalDecoder(apiserverconfig.SchemeGroupVersion), data)
	if err != nil {
		return nil, err
	}
	config, ok := obj.(*Configuration)
	if !ok {
		return nil, fmt.Errorf("expected AuthenticationConfiguration, got %T", obj)
	}
	return config, nil
}

// Validate returns the errors of a configuration, with the paths of fields.
func Validate(config *Configuration) error {
	if err := validation.ValidateAuthenticationConfiguration(authenticationcel.NewCompiler(cel.Environments()), config, nil).ToAggregate(); err != nil {
		return fmt.Errorf("invalid authentication configuration: %w", err)
	}
	return nil
}

// Flags holds upstream's older flags for one issuer.
type Flags struct {
	Issuer, ClientID, CAFile      string
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	RequiredClaims                map[string]string
}

// Configuration converts the flags to a configuration.
func (f *Flags) Configuration() (*Configuration, error) {
	if f.Issuer == "" || f.ClientID == "" {
		return nil, errors.New("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
	}
	usernamePrefix := f.UsernamePrefix
	switch {
	case usernamePrefix == "-":
		usernamePrefix = ""
	// Subjects of different issuers must not become the same user.
	case usernamePrefix == "" && f.UsernameClaim != "email":
		usernamePrefix = f.Issuer + "#"
	}
	jwt := apiserverconfig.JWTAuthenticator{
		Issuer:        apiserverconfig.Issuer{URL: f.Issuer, Audiences: []string{f.ClientID}},
		ClaimMappings: apiserverconfig.ClaimMappings{Username: apiserverconfig.PrefixedClaimOrExpression{Claim: f.UsernameClaim, Prefix: &usernamePrefix}},
	}
	if f.GroupsClaim != "" {
		jwt.ClaimMappings.Groups = apiserverconfig.PrefixedClaimOrExpression{Claim: f.GroupsClaim, Prefix: &f.GroupsPrefix}
	}
	if f.CAFile != "" {
		authorities, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, err
		}
		jwt.Issuer.CertificateAuthority = string(authorities)
	}
	for _, claim := range slices.Sorted(maps.Keys(f.RequiredClaims)) {
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules, apiserverconfig.ClaimValidationRule{Claim: claim, RequiredValue: f.RequiredClaims[claim]})
	}
	return &Configuration{JWT: []apiserverconfig.JWTAuthenticator{jwt}}, nil
}
