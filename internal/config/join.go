package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// DefaultPort is the API server's port if an address has none.
const DefaultPort = "6443"

// JoinURL completes a server's address: https and port 6443 are the defaults. It refuses plain
// HTTP, which would send the token unencrypted.
func JoinURL(text string) (string, error) {
	fail := func() (string, error) {
		return "", fmt.Errorf("join: %q is not usable: a server's address, such as https://host:6443", text)
	}
	written := text
	if ip, err := netip.ParseAddr(text); err == nil && ip.Is6() {
		written = "[" + text + "]"
	}
	if !strings.Contains(written, "://") {
		written = "https://" + written
	}
	u, err := url.Parse(written)
	if err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fail()
	}
	if u.Scheme != "https" {
		return "", fmt.Errorf("join: %q is not usable: servers are joined over https, such as https://%s", text, net.JoinHostPort(u.Hostname(), DefaultPort))
	}
	port := u.Port()
	if port == "" {
		port = DefaultPort
	}
	return "https://" + net.JoinHostPort(u.Hostname(), port), nil
}
