package controlplane

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/config"
)

func TestFrontProxiesOfFlagsAreTrustedBesideTheClustersOwn(t *testing.T) {
	keys, err := pki.Open(pki.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	others, err := pki.Open(pki.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	write := func(pem []byte) string {
		path := filepath.Join(t.TempDir(), "ca")
		if err := os.WriteFile(path, pem, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	headers := []string{"X-User"}
	for name, tc := range map[string]struct {
		flags   config.RequestHeader
		proxies int
		names   []string
		users   []string
		err     string
	}{
		"none":                 {config.RequestHeader{}, 1, []string{"front-proxy-client"}, []string{"X-Remote-User"}, ""},
		"a proxy of any name":  {config.RequestHeader{ClientCA: write(others.CA.Bundle()), UsernameHeaders: headers}, 2, nil, []string{"X-User", "X-Remote-User"}, ""},
		"a proxy of a name":    {config.RequestHeader{ClientCA: write(others.CA.Bundle()), AllowedNames: []string{"p"}}, 2, []string{"p", "front-proxy-client"}, []string{"X-Remote-User"}, ""},
		"no file":              {config.RequestHeader{ClientCA: "/nope"}, 0, nil, nil, "no such file"},
		"no certificates":      {config.RequestHeader{ClientCA: write([]byte("x"))}, 0, nil, nil, "requestheader-client-ca-file"},
		"any of our own users": {config.RequestHeader{ClientCA: write(keys.CA.Bundle())}, 0, nil, nil, "contain overlapping certificates"},
		"one of our own users": {config.RequestHeader{ClientCA: write(keys.CA.Bundle()), AllowedNames: []string{"p"}}, 2, []string{"p", "front-proxy-client"}, []string{"X-Remote-User"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			cfg.APIServer.Authentication.RequestHeader = tc.flags
			s := &Server{cfg: &cfg, keys: keys, log: slog.New(slog.DiscardHandler)}
			all, trust, err := s.proxies()
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v, want %s", err, tc.err)
				}
				return
			}
			if err != nil || len(all) != tc.proxies || !slices.Equal(trust.FrontProxyNames, tc.names) || !slices.Equal(trust.Headers.User, tc.users) {
				t.Errorf("%d proxies, %q, %q, %v", len(all), trust.FrontProxyNames, trust.Headers.User, err)
			}
		})
	}
}

func TestAnonymousRequestsAreAllowedUnlessEverythingIsAuthorized(t *testing.T) {
	yes, no := true, false
	for name, tc := range map[string]struct {
		flag  *bool
		modes []string
		file  string
		want  bool
	}{
		"by default":                         {want: true},
		"not with the flag false":            {flag: &no},
		"not with AlwaysAllow":               {modes: []string{"RBAC", "AlwaysAllow"}},
		"not with AlwaysAllow, even by flag": {flag: &yes, modes: []string{"AlwaysAllow"}},
		"with AlwaysAllow in a file":         {file: "authorizers.yaml", want: true},
	} {
		c := config.Default()
		c.APIServer.Authentication.Anonymous, c.APIServer.AuthorizationModes, c.APIServer.AuthorizationConfig = tc.flag, tc.modes, tc.file
		s := &Server{cfg: &c, log: slog.New(slog.DiscardHandler)}
		if got, _ := s.anonymityOfFlags(); got.Allowed != tc.want {
			t.Errorf("%s: %v", name, got.Allowed)
		}
	}
}
