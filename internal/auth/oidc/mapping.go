package oidc

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/knarr-project/knarr/internal/auth"
)

// mapping maps one token's claims to a user.
type mapping struct {
	config *apiserverconfig.JWTAuthenticator
	mapper *authenticationcel.CELMapper
	claims claims

	cel traits.Mapper // the claims for expressions, made on first use
}

// user returns the user that the claims name, or an error.
func (m *mapping) user(ctx context.Context) (u auth.User, err error) {
	if u.Name, err = m.username(ctx); err != nil {
		return auth.User{}, err
	}
	if u.Groups, err = m.groups(ctx); err != nil {
		return auth.User{}, err
	}
	if u.UID, err = m.uid(ctx); err != nil {
		return auth.User{}, err
	}
	if u.Extra, err = m.extra(ctx); err != nil {
		return auth.User{}, err
	}
	m.addCredentialID(&u) // validation rules see it
	if err := m.checkClaims(ctx); err != nil {
		return auth.User{}, err
	}
	if err := m.checkUser(ctx, &u); err != nil {
		return auth.User{}, err
	}
	return u, nil
}

// addCredentialID adds the credential id of the token (jti) to the user, if it has one.
func (m *mapping) addCredentialID(u *auth.User) {
	var id string
	if m.claims.read("jti", &id) != nil || id == "" {
		return
	}
	if u.Extra == nil {
		u.Extra = map[string][]string{}
	}
	u.Extra[auth.ExtraCredentialID] = []string{"JTI=" + id}
}

func (m *mapping) username(ctx context.Context) (string, error) {
	if m.mapper.Username != nil {
		value, err := m.evaluate(ctx, m.mapper.Username)
		if err != nil {
			return "", fmt.Errorf("oidc: error evaluating username claim expression: %w", err)
		}
		name, ok := value.Value().(string)
		switch {
		case !ok:
			return "", errors.New("oidc: error evaluating username claim expression: username claim expression must return a string")
		case name == "":
			return "", errors.New("oidc: empty username via CEL expression is not allowed")
		}
		return name, nil
	}
	c := &m.config.ClaimMappings.Username
	var name string
	if err := m.claims.read(c.Claim, &name); err != nil {
		return "", fmt.Errorf("oidc: parse username claims %q: %w", c.Claim, err)
	}
	if c.Claim == "email" && m.claims.has("email_verified") {
		// An email address counts unless the issuer says that it is not verified.
		var verified bool
		if err := m.claims.read("email_verified", &verified); err != nil {
			return "", fmt.Errorf("oidc: parse 'email_verified' claim: %w", err)
		}
		if !verified {
			return "", errors.New("oidc: email not verified")
		}
	}
	return prefix(c) + name, nil
}

func prefix(c *apiserverconfig.PrefixedClaimOrExpression) string {
	if c.Prefix == nil {
		return ""
	}
	return *c.Prefix
}

func (m *mapping) groups(ctx context.Context) ([]string, error) {
	if m.mapper.Groups != nil {
		value, err := m.evaluate(ctx, m.mapper.Groups)
		if err == nil {
			var groups []string
			if groups, err = stringsOf(value); err == nil {
				return groups, nil
			}
		}
		return nil, fmt.Errorf("oidc: error evaluating group claim expression: %w", err)
	}
	c := &m.config.ClaimMappings.Groups
	if c.Claim == "" || !m.claims.has(c.Claim) {
		return nil, nil
	}
	var groups stringOrList
	if err := m.claims.read(c.Claim, &groups); err != nil {
		return nil, fmt.Errorf("oidc: parse groups claim %q: %w", c.Claim, err)
	}
	for i := range groups {
		groups[i] = prefix(c) + groups[i]
	}
	return groups, nil
}

func (m *mapping) uid(ctx context.Context) (string, error) {
	if m.mapper.UID != nil {
		value, err := m.evaluate(ctx, m.mapper.UID)
		if err != nil {
			return "", fmt.Errorf("oidc: error evaluating uid claim expression: %w", err)
		}
		uid, ok := value.Value().(string)
		if !ok {
			return "", errors.New("oidc: error evaluating uid claim expression: uid claim expression must return a string")
		}
		return uid, nil
	}
	claim := m.config.ClaimMappings.UID.Claim
	if claim == "" {
		return "", nil
	}
	var uid string
	if err := m.claims.read(claim, &uid); err != nil {
		return "", fmt.Errorf("oidc: parse uid claim %q: %w", claim, err)
	}
	return uid, nil
}

func (m *mapping) extra(ctx context.Context) (map[string][]string, error) {
	if m.mapper.Extra == nil {
		return nil, nil
	}
	results, err := m.evaluateAll(ctx, m.mapper.Extra)
	if err != nil {
		return nil, fmt.Errorf("oidc: error evaluating extra claim expression: %w", err)
	}
	extra := map[string][]string{}
	for _, r := range results {
		e, ok := r.ExpressionAccessor.(*authenticationcel.ExtraMappingExpression)
		if !ok {
			return nil, fmt.Errorf("oidc: unexpected %T in the mapping of extra", r.ExpressionAccessor)
		}
		values, err := stringsOf(r.EvalResult)
		if err != nil {
			return nil, fmt.Errorf("oidc: error evaluating extra claim expression: %s: %w", e.Expression, err)
		}
		if len(values) > 0 {
			extra[e.Key] = values
		}
	}
	return extra, nil
}

func (m *mapping) checkClaims(ctx context.Context) error {
	for _, rule := range m.config.ClaimValidationRules {
		if rule.Claim == "" {
			continue
		}
		if !m.claims.has(rule.Claim) {
			return fmt.Errorf("oidc: required claim %s not present in ID token", rule.Claim)
		}
		var value string
		if err := m.claims.read(rule.Claim, &value); err != nil {
			return fmt.Errorf("oidc: parse claim %s: %w", rule.Claim, err)
		}
		if value != rule.RequiredValue {
			return fmt.Errorf("oidc: required claim %s value does not match. Got = %s, want = %s", rule.Claim, value, rule.RequiredValue)
		}
	}
	if m.mapper.ClaimValidationRules == nil {
		return nil
	}
	results, err := m.evaluateAll(ctx, m.mapper.ClaimValidationRules)
	if err == nil {
		err = allTrue(results)
	}
	if err != nil {
		return fmt.Errorf("oidc: error evaluating claim validation expression: %w", err)
	}
	return nil
}

func (m *mapping) checkUser(ctx context.Context, u *auth.User) error {
	if m.mapper.UserValidationRules == nil {
		return nil
	}
	var extra map[string][]string // absent values are absent in CEL, not null
	if extra = u.Extra; extra == nil {
		extra = map[string][]string{}
	}
	groups := append([]string{}, u.Groups...)
	results, err := m.mapper.UserValidationRules.EvalUser(ctx, celMap(map[string]any{"username": u.Name, "uid": u.UID, "groups": groups, "extra": extra}))
	if err == nil {
		err = allTrue(results)
	}
	if err != nil {
		return fmt.Errorf("oidc: error evaluating user info validation rule: %w", err)
	}
	return nil
}

// allTrue returns an error for the first expression that is not true.
func allTrue(results []authenticationcel.EvaluationResult) error {
	for _, r := range results {
		var expression, message string
		switch e := r.ExpressionAccessor.(type) {
		case *authenticationcel.ClaimValidationCondition:
			expression, message = e.Expression, e.Message
		case *authenticationcel.UserValidationCondition:
			expression, message = e.Expression, e.Message
		}
		if r.EvalResult != types.True {
			return fmt.Errorf("validation expression '%s' failed: %s", expression, message)
		}
	}
	return nil
}

func celMap(values map[string]any) traits.Mapper {
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, values)
}

func (m *mapping) celClaims() (traits.Mapper, error) {
	if m.cel == nil {
		values, err := m.claims.values()
		if err != nil {
			return nil, err
		}
		m.cel = celMap(values)
	}
	return m.cel, nil
}

func (m *mapping) evaluate(ctx context.Context, expression authenticationcel.ClaimsMapper) (ref.Val, error) {
	claims, err := m.celClaims()
	if err != nil {
		return nil, err
	}
	result, err := expression.EvalClaimMapping(ctx, claims)
	return result.EvalResult, err
}

func (m *mapping) evaluateAll(ctx context.Context, expressions authenticationcel.ClaimsMapper) ([]authenticationcel.EvaluationResult, error) {
	claims, err := m.celClaims()
	if err != nil {
		return nil, err
	}
	return expressions.EvalClaimMappings(ctx, claims)
}

var errStrings = errors.New("expression must return a string or a list of strings")

// stringsOf returns the non-empty strings of a value; null means none.
func stringsOf(value ref.Val) ([]string, error) {
	switch v := value.(type) {
	case types.Null:
		return nil, nil
	case types.String:
		if v == "" {
			return nil, nil
		}
		return []string{string(v)}, nil
	case traits.Lister:
		native, err := v.ConvertToNative(reflect.TypeFor[[]string]())
		if err != nil {
			return nil, errStrings
		}
		var list []string
		for _, s := range native.([]string) {
			if s != "" {
				list = append(list, s)
			}
		}
		return list, nil
	}
	return nil, errStrings
}
