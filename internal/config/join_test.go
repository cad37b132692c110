package config

import (
	"strings"
	"testing"
)

func TestAServersAddressMayBeAbbreviated(t *testing.T) {
	for text, want := range map[string]string{
		"https://192.0.2.1:6443":  "https://192.0.2.1:6443",
		"https://192.0.2.1:6443/": "https://192.0.2.1:6443",
		"https://192.0.2.1":       "https://192.0.2.1:6443",
		"192.0.2.1":               "https://192.0.2.1:6443",
		"192.0.2.1:7443":          "https://192.0.2.1:7443",
		"server.example":          "https://server.example:6443",
		"server:7443":             "https://server:7443",
		"2001:db8::1":             "https://[2001:db8::1]:6443",
		"[2001:db8::1]:7443":      "https://[2001:db8::1]:7443",
		"https://[2001:db8::1]":   "https://[2001:db8::1]:6443",
	} {
		if got, err := JoinURL(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"http://server:6443", "https://", "https://server/path", "server:port", "https://user@server", "a b", "/tmp/file"} {
		if got, err := JoinURL(text); err == nil || !strings.Contains(err.Error(), "https://") {
			t.Errorf("%q: %q, %v; want an error that shows a usable one", text, got, err)
		}
	}
}

func TestCompleteCompletesJoin(t *testing.T) {
	c := Default()
	c.Join = "https://192.0.2.1"
	if err := c.Complete(); err != nil || c.Join != "https://192.0.2.1:6443" {
		t.Errorf("%q, %v", c.Join, err)
	}
}
