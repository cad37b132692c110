package config

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
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

// JoinURLs splits the value of --join.
func JoinURLs(text string) (urls []string) {
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			urls = append(urls, one)
		}
	}
	return urls
}

// completeJoin completes each server's address (JoinURL).
func completeJoin(text string) (string, error) {
	urls := JoinURLs(text)
	if len(urls) == 0 {
		return JoinURL(text)
	}
	for i, one := range urls {
		url, err := JoinURL(one)
		if err != nil {
			return "", err
		}
		urls[i] = url
	}
	return strings.Join(urls, ","), nil
}

// maxToken is the largest size of a token file, in bytes.
const maxToken = 4 << 10

// JoinToken returns the token of --token or --token-file, or "" if neither is given. It reads the
// file or the standard input when it is called first, because a machine that has joined needs no
// token.
func (c *Config) JoinToken() (string, error) {
	if c.Token != "" || c.TokenFile == "" {
		return c.Token, nil
	}
	if c.readToken != "" {
		return c.readToken, nil
	}
	in, name := os.Stdin, "standard input"
	if c.TokenFile != "-" {
		f, err := os.Open(c.TokenFile)
		if err != nil {
			return "", fmt.Errorf("token-file: %w", err)
		}
		defer f.Close()
		in, name = f, c.TokenFile
	}
	token, err := readToken(in)
	if err != nil {
		return "", fmt.Errorf("token-file: %s: %w", name, err)
	}
	c.readToken = token
	return token, nil
}

// readToken reads one line; space around it does not matter.
func readToken(in io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	switch {
	case token == "":
		return "", errors.New("it is empty; it must hold a token from `knarr token create`")
	case len(data) > maxToken || strings.ContainsAny(token, " \t\r\n"):
		return "", errors.New("it holds more than a token from `knarr token create`")
	}
	return token, nil
}

// PeerAddress is HOST:PORT at which other servers reach the embedded store.
func (c *Config) PeerAddress() string {
	at, err := netip.ParseAddrPort(c.PeerListen)
	if err != nil {
		return ""
	}
	host := at.Addr().String()
	if at.Addr().IsUnspecified() {
		host = c.AdvertiseAddress
	}
	return net.JoinHostPort(host, fmt.Sprint(at.Port()))
}
