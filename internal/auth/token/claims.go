package token

import (
	"encoding/json"
	"time"
)

// DefaultIssuer is the issuer and audience of a cluster with the domain cluster.local.
const DefaultIssuer = "https://kubernetes.default.svc.cluster.local"

// legacyIssuer is the issuer of tokens in Secrets.
const legacyIssuer = "kubernetes/serviceaccount"

// claims are the claims of a service account token.
type claims struct {
	Audience  audience `json:"aud,omitempty"`
	Expires   int64    `json:"exp,omitempty"` // Unix seconds
	IssuedAt  int64    `json:"iat,omitempty"`
	Issuer    string   `json:"iss,omitempty"`
	ID        string   `json:"jti,omitempty"`
	Private   *private `json:"kubernetes.io,omitempty"`
	NotBefore int64    `json:"nbf,omitempty"`
	Subject   string   `json:"sub,omitempty"`
	legacy             // of tokens in Secrets
}

type private struct {
	Namespace      string `json:"namespace,omitempty"`
	Node           *ref   `json:"node,omitempty"`
	Pod            *ref   `json:"pod,omitempty"`
	Secret         *ref   `json:"secret,omitempty"`
	ServiceAccount ref    `json:"serviceaccount"`
	// WarnAfter is the time at which a token with an extended expiry should have been refreshed.
	WarnAfter int64 `json:"warnafter,omitempty"`
}

type ref struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

type legacy struct {
	LegacyNamespace  string `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
	LegacySecretName string `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`
	LegacyName       string `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	LegacyUID        string `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
}

// audience is one string or several in JSON (RFC 7519, 4.1.3).
type audience []string

func (a *audience) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// leeway is the tolerated difference of clocks.
const leeway = 10 * time.Second

// checkTimes returns an error if the token is not valid at the time.
func (c *claims) checkTimes(now time.Time) error {
	if c.NotBefore != 0 && now.Add(leeway).Before(time.Unix(c.NotBefore, 0)) {
		return errNotYetValid
	}
	if c.Expires != 0 && now.Add(-leeway).After(time.Unix(c.Expires, 0)) {
		return errExpired
	}
	return nil
}
