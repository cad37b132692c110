package config

import (
	"os"
	"path/filepath"
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

func TestSeveralServersMayBeGiven(t *testing.T) {
	c := Default()
	c.Join = "192.0.2.1, https://server.example:7443,2001:db8::1"
	if err := c.Complete(); err != nil || c.Join != "https://192.0.2.1:6443,https://server.example:7443,https://[2001:db8::1]:6443" {
		t.Errorf("%q, %v", c.Join, err)
	}
	if got := JoinURLs(c.Join); len(got) != 3 {
		t.Errorf("%q", got)
	}
	for _, text := range []string{",", "192.0.2.1,http://192.0.2.2", "192.0.2.1,a b"} {
		c.Join = text
		if err := c.Complete(); err == nil {
			t.Errorf("%q is completed to %q", text, c.Join)
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

func TestATokenIsReadFromAFile(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "token")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := Default()
	if got, err := c.JoinToken(); got != "" || err != nil {
		t.Errorf("without a token: %q, %v", got, err)
	}
	c.TokenFile = write("a.b.c\n")
	if got, err := c.JoinToken(); got != "a.b.c" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for name, text := range map[string]string{"an empty file": "\n", "two lines": "a\nb", "a long file": strings.Repeat("a", 5000)} {
		c := Default()
		c.TokenFile = write(text)
		if got, err := c.JoinToken(); err == nil || !strings.Contains(err.Error(), c.TokenFile) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	c = Default()
	c.Token, c.TokenFile = "a", "b"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "token-file") {
		t.Errorf("both: %v", err)
	}
}

func TestTheAddressForOtherServersHasTheListenersHost(t *testing.T) {
	for listen, want := range map[string]string{"0.0.0.0:2380": "192.0.2.7:2380", "127.0.0.1:5": "127.0.0.1:5", "[::]:2380": "192.0.2.7:2380"} {
		c := Default()
		c.AdvertiseAddress, c.PeerListen = "192.0.2.7", listen
		if got := c.PeerAddress(); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}
