package oidc

import (
	"crypto"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/zpages"
)

func TestNewKeysOfAnIssuerAreFetchedWhenTheyAreUsed(t *testing.T) {
	i := startIssuer(t)
	tokens := configured(t, i, "  claimMappings:\n    username: {claim: sub, prefix: ''}\n")
	claims := fmt.Sprintf(`{"iss":%q,"aud":"a","exp":4000000000,"sub":"bob"}`, i.URL)
	is := func(token string) bool {
		_, _, ok, _ := tokens.AuthenticateToken(t.Context(), token, []string{own})
		return ok
	}
	old := i.sign(t, "ES256", "ec", claims)
	for range 2 {
		if !is(old) || i.asked != 1 {
			t.Fatalf("the keys were fetched %d times", i.asked)
		}
	}
	i.mu.Lock()
	i.keys = map[string]crypto.Signer{"next": ecKey(t)}
	i.mu.Unlock()
	if !is(old) { // its key is still known, and no newer list has replaced it
		t.Error("an old key is forgotten before a new one was seen")
	}
	if next := i.sign(t, "ES256", "next", claims); !is(next) {
		t.Error("the new key is not found")
	}
	if is(old) {
		t.Error("a key that is no longer published is believed")
	}
}

// The series are those of upstream's API server v1.36.3.
func TestMetricsNameIssuersByHash(t *testing.T) {
	i := startIssuer(t)
	tokens := configured(t, i, "  claimMappings:\n    username: {claim: sub, prefix: ''}\n")
	registry := prometheus.NewRegistry()
	registry.MustRegister(tokens.Collectors()...)
	told := func() (all []string) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.Metric {
				name := strings.TrimPrefix(family.GetName(), "apiserver_authentication_jwt_authenticator_")
				for _, l := range m.Label {
					value := l.GetValue()
					switch value {
					case zpages.Hashed(i.URL):
						value = "the issuer's"
					case zpages.Hashed(zpages.Identity()):
						value = "the server's"
					}
					if l.GetName() == "hash" {
						if !strings.HasPrefix(value, "sha256:") {
							t.Errorf("the hash of its keys is %q", value)
						}
						value = "of the keys"
					}
					name += ", " + l.GetName() + " " + value
				}
				all = append(all, name)
			}
		}
		return all
	}
	for _, subject := range []string{`"bob"`, "7"} {
		claims := fmt.Sprintf(`{"iss":%q,"aud":"a","exp":4000000000,"sub":%s}`, i.URL, subject)
		_, _, _, _ = tokens.AuthenticateToken(t.Context(), i.sign(t, "ES256", "ec", claims), []string{own})
	}
	want := []string{
		"jwks_fetch_last_key_set_info, apiserver_id_hash the server's, hash of the keys, jwt_issuer_hash the issuer's",
		"jwks_fetch_last_timestamp_seconds, apiserver_id_hash the server's, jwt_issuer_hash the issuer's, result success",
		"latency_seconds, jwt_issuer_hash the issuer's, result failure", "latency_seconds, jwt_issuer_hash the issuer's, result success",
	}
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("it tells of\n%s", strings.Join(got, "\n"))
	}
	if err := tokens.Use(t.Context(), &Configuration{}, true); err != nil {
		t.Fatal(err)
	}
	if got := told(); len(got) > 0 {
		t.Errorf("of an issuer that is gone it tells\n%s", strings.Join(got, "\n"))
	}
}

func TestDiscoveryContinuesUntilAnIssuerAnswers(t *testing.T) {
	i := startIssuer(t)
	i.away = true
	tokens, err := New(t.Context(), Options{Audiences: []string{own}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	config := configuration(t, i, byEmail)
	if err := tokens.Use(t.Context(), config, true); err == nil {
		t.Error("a changed configuration counts whose issuer does not answer")
	}
	if err := tokens.Use(t.Context(), config, false); err != nil {
		t.Fatal(err)
	}
	claims := fmt.Sprintf(`{"iss":%q,"aud":"a","exp":4000000000,"email":"a@b"}`, i.URL)
	_, _, _, err = tokens.AuthenticateToken(t.Context(), i.sign(t, "ES256", "ec", claims), []string{own})
	if want := fmt.Sprintf("oidc: authenticator for issuer %q is not initialized", i.URL); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	i.mu.Lock()
	i.away = false
	i.mu.Unlock()
	first := (*tokens.list.Load())[0]
	if err := first.provider.discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := tokens.AuthenticateToken(t.Context(), i.sign(t, "ES256", "ec", claims), []string{own}); !ok {
		t.Error(err)
	}
	// A new configuration keeps the authenticators of unchanged issuers, and ends those of removed
	// ones.
	if err := tokens.Use(t.Context(), config, true); err != nil || (*tokens.list.Load())[0] != first {
		t.Errorf("an authenticator that did not change was made again: %v", err)
	}
	if err := tokens.Use(t.Context(), &Configuration{}, true); err != nil {
		t.Error(err)
	}
	tokens.asking.Wait() // no requests to removed issuers remain
	// An issuer whose document names another issuer is not trusted.
	i.name = "https://other"
	if err := tokens.Use(t.Context(), config, true); err == nil || !strings.Contains(err.Error(), "did not match the issuer URL returned by provider") {
		t.Error(err)
	}
}

func TestFailedFetchesOfKeysAreNotRepeatedAtOnce(t *testing.T) {
	i := startIssuer(t)
	now := time.Unix(1_800_000_000, 0)
	tokens, err := New(t.Context(), Options{Audiences: []string{own}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	if err := tokens.Use(t.Context(), configuration(t, i, byEmail), true); err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	i.keyless = true
	i.mu.Unlock()
	token := i.sign(t, "ES256", "ec", fmt.Sprintf(`{"iss":%q,"aud":"a","exp":4000000000,"email":"a@b"}`, i.URL))
	for range 3 {
		if _, _, ok, err := tokens.AuthenticateToken(t.Context(), token, []string{own}); ok || err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("%v %v", ok, err)
		}
	}
	if i.asked != 1 {
		t.Errorf("three tokens had the keys asked for %d times", i.asked)
	}
	i.mu.Lock()
	i.keyless = false
	i.mu.Unlock()
	now = now.Add(fetchEvery)
	if _, _, ok, err := tokens.AuthenticateToken(t.Context(), token, []string{own}); !ok {
		t.Errorf("when the issuer is well again: %v", err)
	}
	// A failed discovery keeps the known URL of the keys.
	i.mu.Lock()
	i.away = true
	i.mu.Unlock()
	first := (*tokens.list.Load())[0]
	if err := first.provider.discover(t.Context()); err == nil {
		t.Error("the issuer is away and answers")
	}
	if err := first.provider.ready(); err != nil {
		t.Error(err)
	}
}

func TestInvalidIssuersOfDistributedClaimsAreForgotten(t *testing.T) {
	i := startIssuer(t)
	tokens := configured(t, i, byEmail)
	a := (*tokens.list.Load())[0]
	for n := range maxSources + 1 {
		if _, err := a.source(t.Context(), fmt.Sprintf("%s/nobody%d", i.URL, n)); err == nil || strings.Contains(err.Error(), "too many") {
			t.Fatalf("issuer %d: %v", n, err)
		}
	}
	if len(a.sources) != 0 {
		t.Errorf("%d issuers that do not answer are kept", len(a.sources))
	}
}
