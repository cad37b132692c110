package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

// Front is what is said of requests whoever they are from, with upstream's names.
type Front struct {
	// Origins are expressions for the origins of pages whose scripts may ask this server.
	Origins []string
	// StrictTransport tells browsers to come with HTTPS only: directives of RFC 6797.
	StrictTransport []string
	// GoAway is the part of requests over HTTP/2 whose client is told to make the next ones over another connection.
	GoAway float64
}

const mostGoAway = 0.02

// addFlags leaves GoAway to the topic of limits.
func (c *Front) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Origins, "cors-allowed-origins", c.Origins, "regular expressions for `ORIGINS` of web pages that may call this server (CORS)\nFor example, //example\\.com(:|$). Each must match the beginning and the end of a host. Without it no CORS headers are sent.")
	f.StringSliceVar(&c.StrictTransport, "strict-transport-security-directives", c.StrictTransport, "`DIRECTIVES` of the Strict-Transport-Security header\nFor example, max-age=31536000,includeSubDomains,preload. Without it the header is not sent.")
}

// Expressions are the Origins. Validate has looked at them.
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

// bound says whether the expression says where a host begins and where it ends: else the pages of example.com.evil.net, too, might be those that are meant. The ':'
// before a host, or of a group that is not captured, says nothing of its end. Upstream takes that before the host for one.
func bound(expression string) bool {
	_, host, slashes := strings.Cut(expression, "//")
	return (slashes || strings.Contains(expression, "^")) && (strings.Contains(expression, "$") || strings.Contains(strings.NewReplacer("(?:", "(", "://", "//").Replace(host), ":"))
}

func (c *Front) validate(bad func(field, value, allowed string)) {
	if c.GoAway < 0 || c.GoAway > mostGoAway {
		bad("goaway-chance", fmt.Sprint(c.GoAway), fmt.Sprintf("between 0 and %v", mostGoAway))
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
