package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

// Front holds the settings of HTTP that do not depend on the user, with upstream's names.
type Front struct {
	// Origins are regular expressions for origins of web pages whose scripts may call this server.
	Origins []string
	// StrictTransport tells browsers to use HTTPS only: directives of RFC 6797.
	StrictTransport []string
	// GoAway is the share of HTTP/2 requests whose client is told to open a new connection.
	GoAway float64
}

const maxGoAway = 0.02

// addFlags does not add GoAway, which belongs to the topic of limits.
func (c *Front) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Origins, "cors-allowed-origins", c.Origins, "regular expressions for `ORIGINS` of web pages that may call this server (CORS)\nFor example, //example\\.com(:|$). Each must match the beginning and the end of a host. Without it no CORS headers are sent.")
	f.StringSliceVar(&c.StrictTransport, "strict-transport-security-directives", c.StrictTransport, "`DIRECTIVES` of the Strict-Transport-Security header\nFor example, max-age=31536000,includeSubDomains,preload. Without it the header is not sent.")
}

// Expressions returns the compiled Origins, which Validate has checked.
func (c *Front) Expressions() (list []*regexp.Regexp, err error) {
	for _, text := range c.Origins {
		re, err := regexp.Compile(text)
		if err != nil {
			return nil, err
		}
		if !bound(text) {
			return nil, fmt.Errorf("%s is not bound to the beginning (by '^' or '//') and the end (by '$' or ':') of a host", text)
		}
		list = append(list, re)
	}
	return list, nil
}

// bound reports whether the expression fixes where a host begins and ends. Otherwise pages of
// example.com.evil.net could match, too. The ':' before a host, or of a group that is not captured,
// does not mark the host's end. Upstream accepts the one before the host.
func bound(expression string) bool {
	_, host, slashes := strings.Cut(expression, "//")
	return (slashes || strings.Contains(expression, "^")) && (strings.Contains(expression, "$") || strings.Contains(strings.NewReplacer("(?:", "(", "://", "//").Replace(host), ":"))
}

func (c *Front) validate(bad func(field, value, allowed string)) {
	if c.GoAway < 0 || c.GoAway > maxGoAway {
		bad("goaway-chance", fmt.Sprint(c.GoAway), fmt.Sprintf("between 0 and %v", maxGoAway))
	}
	if _, err := c.Expressions(); err != nil {
		bad("cors-allowed-origins", strings.Join(c.Origins, ","), "regular expressions: "+err.Error())
	}
	for _, directive := range c.StrictTransport {
		name, _, _ := strings.Cut(directive, "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "max-age", "includesubdomains", "preload":
		default:
			bad("strict-transport-security-directives", directive, "max-age=SECONDS, includeSubDomains and preload (RFC 6797, 6.1)")
		}
	}
}
