package signer

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/knarr-project/knarr/internal/auth/signertest"
)

// The texts are those of upstream's API server v1.36.3, where it has the same errors.
func TestInvalidAnswersOfASignerAreRefused(t *testing.T) {
	keys := func(change func(*externaljwt.FetchKeysResponse)) func(*signertest.Answers) {
		return func(a *signertest.Answers) { change(a.Keys) }
	}
	for name, tc := range map[string]struct {
		change func(*signertest.Answers)
		want   string
	}{
		"tokens that end too soon": {func(a *signertest.Answers) { a.MaxExpiration = 100 }, "max token life supported by external-jwt-signer (100s) is less than acceptable (min 600s)"},
		"a failure":                {func(a *signertest.Answers) { a.Err = errors.New("boom") }, "metadata: rpc error: code = Unknown desc = boom"},
		"no time":                  {keys(func(k *externaljwt.FetchKeysResponse) { k.DataTimestamp = nil }), "invalid data timestamp:"},
		"no refresh":               {keys(func(k *externaljwt.FetchKeysResponse) { k.RefreshHintSeconds = 0 }), "found invalid refresh hint (0s)"},
		"no keys":                  {keys(func(k *externaljwt.FetchKeysResponse) { k.Keys = nil }), "found no keys"},
		"a key without a name":     {keys(func(k *externaljwt.FetchKeysResponse) { k.Keys[0].KeyId = "" }), `found invalid public key id ""`},
		"a key with a long name":   {keys(func(k *externaljwt.FetchKeysResponse) { k.Keys[0].KeyId = strings.Repeat("x", 1025) }), "found invalid public key id"},
		"no key":                   {keys(func(k *externaljwt.FetchKeysResponse) { k.Keys[0].Key = []byte("x") }), "asn1: syntax error"},
	} {
		t.Run(name, func(t *testing.T) {
			server := signertest.Start(t)
			server.Change(tc.change)
			s, err := Connect(t.Context(), server.Socket, slog.Default())
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestSignedTokensFollowTheProtocol(t *testing.T) {
	server := signertest.Start(t)
	s, err := Connect(t.Context(), server.Socket, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, tc := range map[string]struct {
		header, want string
	}{
		"as it should be":      {`{"alg":"RS256","kid":"k1","typ":"JWT"}`, ""},
		"of a new key":         {`{"alg":"RS256","kid":"k2","typ":"JWT"}`, ""},
		"of another type":      {`{"alg":"RS256","kid":"k1","typ":"X"}`, "while validating header: bad type"},
		"of no algorithm here": {`{"alg":"PS256","kid":"k1","typ":"JWT"}`, `bad signing algorithm "PS256"`},
		"of an unnamed key":    {`{"alg":"RS256","typ":"JWT"}`, "key id missing"},
		"that says more":       {`{"alg":"RS256","kid":"k1","typ":"JWT","foo":1}`, `unknown field "foo"`},
		"that says it twice":   {`{"alg":"RS256","kid":"k1","typ":"JWT"}{}`, "data after the object"},
		"with a bracket more":  {`{"alg":"RS256","kid":"k1","typ":"JWT"}}`, "data after the object"},
		"that is no JSON":      {`x`, "while parsing header JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			server.Change(func(a *signertest.Answers) { a.Header = tc.header })
			token, err := s.Sign(t.Context(), []byte(`{"a":1}`))
			if tc.want == "" && (err != nil || strings.Count(token, ".") != 2) || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%q, %v; want %q", token, err, tc.want)
			}
		})
	}
	server.Change(func(a *signertest.Answers) {
		a.Header = `{"alg":"RS256","kid":"k3","typ":"JWT"}`
		a.Keys = &externaljwt.FetchKeysResponse{Keys: []*externaljwt.Key{server.Key("k3")}, DataTimestamp: timestamppb.Now(), RefreshHintSeconds: 10}
		a.Keys.Keys[0].ExcludeFromOidcDiscovery = true
	})
	if _, err := s.Sign(t.Context(), []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "(kid: k3) is excluded from OIDC discovery docs") {
		t.Errorf("signed with an unpublished key: %v", err)
	}
	server.Change(func(a *signertest.Answers) {
		a.Header = `{"alg":"RS256","kid":"k4","typ":"JWT"}`
		a.Keys = &externaljwt.FetchKeysResponse{Keys: []*externaljwt.Key{server.Key("k4"), server.Key("k4")}, DataTimestamp: timestamppb.Now(), RefreshHintSeconds: 10}
		a.Keys.Keys[1].ExcludeFromOidcDiscovery = true
	})
	if _, err := s.Sign(t.Context(), []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "(kid: k4) is excluded from OIDC discovery docs") {
		t.Errorf("signed with the name of an unpublished key: %v", err)
	}
	if k := s.Keys(); k.Refresh != 10*time.Second || k.Left(k.read.Add(4*time.Second)) != 6*time.Second || k.Left(k.read.Add(time.Hour)) != 0 {
		t.Errorf("keys are to be read again in %s", k.Refresh)
	}
	server.Change(func(a *signertest.Answers) { a.Err = errors.New("boom") })
	if err := s.Fetch(t.Context()); err == nil || len(s.Keys().All) != 2 {
		t.Errorf("after a failure there are %v, %v", s.Keys().All, err)
	}
}

func TestASignersSocketMayBeAbstract(t *testing.T) {
	server := signertest.StartAt(t, "@knarr-"+rand.Text())
	s, err := Connect(t.Context(), server.Socket, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.MaxExpiration != 24*time.Hour {
		t.Errorf("tokens may live for %s", s.MaxExpiration)
	}
}

// The longest time that the number of seconds can express does not fit into a time.Duration.
func TestASignerMaySetNoBound(t *testing.T) {
	server := signertest.Start(t)
	server.Change(func(a *signertest.Answers) { a.MaxExpiration = math.MaxInt64 })
	s, err := Connect(t.Context(), server.Socket, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.MaxExpiration != (1<<32)*time.Second {
		t.Errorf("tokens may live for %s", s.MaxExpiration)
	}
}

func TestSigningWaitsForARestartingSigner(t *testing.T) {
	server := signertest.Start(t)
	s, err := Connect(t.Context(), server.Socket, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	server.Stop()
	if err := s.Fetch(t.Context()); err == nil {
		t.Error("fetched keys without a signer")
	}
	again := make(chan error, 1)
	go func() {
		_, err := s.Sign(t.Context(), []byte(`{}`))
		again <- err
	}()
	signertest.StartAt(t, server.Socket)
	if err := <-again; err != nil {
		t.Errorf("a request without a signer: %v", err)
	}
}

func TestKeysOfUnknownTypesAreIgnored(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	server := signertest.Start(t)
	server.Change(func(a *signertest.Answers) {
		a.Keys.Keys = append(a.Keys.Keys, &externaljwt.Key{KeyId: "other", Key: der})
	})
	s, err := Connect(t.Context(), server.Socket, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if all := s.Keys().All; len(all) != 1 || all[0].ID != "k1" {
		t.Errorf("keys are %v", all)
	}
	server.Change(func(a *signertest.Answers) { a.Keys.Keys = a.Keys.Keys[1:] })
	if err := s.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "found no keys of RSA") {
		t.Errorf("got %v", err)
	}
}

func TestRepeatedKeysAreTheSame(t *testing.T) {
	server := signertest.Start(t)
	s, err := Connect(t.Context(), server.Socket, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first := s.Keys()
	if err := s.Fetch(t.Context()); err != nil || s.Keys() == first || !first.Same(s.Keys()) {
		t.Errorf("%v, then %v, %v", first, s.Keys(), err)
	}
	server.Change(func(a *signertest.Answers) {
		a.Keys = &externaljwt.FetchKeysResponse{Keys: []*externaljwt.Key{server.Key("k2")}, DataTimestamp: timestamppb.Now(), RefreshHintSeconds: 10}
	})
	if err := s.Fetch(t.Context()); err != nil || first.Same(s.Keys()) {
		t.Errorf("%v are the same as %v, %v", first, s.Keys(), err)
	}
}

func TestAMissingSignerIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Connect(ctx, t.TempDir()+"/none", slog.Default()); err == nil || !strings.Contains(err.Error(), "/none: metadata:") {
		t.Errorf("got %v", err)
	}
}
