package oidc

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// claims holds a token's claims in their raw form.
type claims map[string]json.RawMessage

var errNotPresent = errors.New("claim not present")

// read decodes a claim.
func (c claims) read(name string, into any) error {
	raw, ok := c[name]
	if !ok {
		return errNotPresent
	}
	return json.Unmarshal(raw, into)
}

// has reports whether a claim exists.
func (c claims) has(name string) bool {
	_, ok := c[name]
	return ok
}

// values returns the claims for CEL: numbers are doubles.
func (c claims) values() (map[string]any, error) {
	out := make(map[string]any, len(c))
	for name, raw := range c {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("oidc: parse claim %s: %w", name, err)
		}
		out[name] = v
	}
	return out, nil
}

// stringOrList is a claim of one string or several; null means none.
type stringOrList []string

func (l *stringOrList) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*l = nil
		return nil
	}
	var list []string
	if json.Unmarshal(data, &list) == nil {
		*l = list
		return nil
	}
	var one string
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	*l = stringOrList{one}
	return nil
}

// audiences is a claim of one string or several; null is an error.
type audiences []string

func (a *audiences) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audiences{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*a = list
	return nil
}

// numericDate is a number of seconds since 1970; a fraction is ignored (RFC 7519).
type numericDate struct{ time.Time }

func (d *numericDate) UnmarshalJSON(data []byte) error {
	var number json.Number
	if err := json.Unmarshal(data, &number); err != nil {
		return err
	}
	if seconds, err := number.Int64(); err == nil {
		d.Time = time.Unix(seconds, 0).UTC()
		return nil
	}
	seconds, err := number.Float64()
	if err != nil {
		return err
	}
	d.Time = time.Unix(int64(seconds), 0).UTC()
	return nil
}

// idToken holds the claims about a token's audience and validity.
type idToken struct {
	Issuer   string      `json:"iss"`
	Subject  string      `json:"sub"`
	Audience audiences   `json:"aud"`
	Expiry   numericDate `json:"exp"`
	// This field and the next two are only checked for their type.
	IssuedAt     numericDate       `json:"iat"`
	Nonce        string            `json:"nonce"`
	AccessHash   string            `json:"at_hash"`
	NotBefore    *numericDate      `json:"nbf"`
	ClaimNames   map[string]string `json:"_claim_names"`
	ClaimSources map[string]source `json:"_claim_sources"`
}

// source is the location of a distributed claim (OpenID Connect Core 1.0, 5.6.2).
type source struct {
	Endpoint    string `json:"endpoint"`
	AccessToken string `json:"access_token"`
}

// leeway is the tolerated difference of an issuer's clock.
const leeway = time.Minute

// check returns an error unless the token is valid at the time for one of the audiences.
func (t *idToken) check(meantFor []string, now time.Time) error {
	for _, name := range t.ClaimNames {
		if _, ok := t.ClaimSources[name]; !ok {
			return errors.New("oidc: source does not exist")
		}
	}
	if !slices.ContainsFunc(meantFor, func(a string) bool { return slices.Contains(t.Audience, a) }) {
		if len(meantFor) == 1 {
			return fmt.Errorf("oidc: expected audience %q got %q", meantFor[0], []string(t.Audience))
		}
		return fmt.Errorf("oidc: expected audience in %q got %q", meantFor, []string(t.Audience))
	}
	if t.Expiry.Before(now) {
		return fmt.Errorf("oidc: token is expired (Token Expiry: %v)", t.Expiry.Time)
	}
	if t.NotBefore != nil && now.Add(leeway).Before(t.NotBefore.Time) {
		return fmt.Errorf("oidc: current time %v before the nbf (not before) time: %v", now, t.NotBefore.Time)
	}
	return nil
}
