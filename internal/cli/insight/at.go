package insight

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/insight/timeline"
)

// TakeAt takes --at TIME from the arguments of kubectl, which has no flag of that name, and returns
// the time in the format of RFC 3339; "" without the flag.
func TakeAt(args []string, now time.Time) (rest []string, at string, err error) {
	for i, arg := range args {
		value, ok := strings.CutPrefix(arg, "--at=")
		after := i + 1
		switch {
		case arg == "--":
			return args, "", nil
		case arg == "--at" && after < len(args):
			value, ok = args[after], true
			after++
		case arg == "--at":
			return nil, "", errors.New("kubectl: --at needs a time: a duration back from now, such as 10m or 2d, or a time, such as 2026-01-31T09:00:00Z")
		}
		if !ok {
			continue
		}
		moment, err := timeline.ParseTime(value, now)
		if err != nil {
			return nil, "", fmt.Errorf("kubectl: --at: %w", err)
		}
		return slices.Concat(args[:i], args[after:]), moment.UTC().Format(time.RFC3339Nano), nil
	}
	return args, "", nil
}

// CheckAt refuses a kubectl command that cannot show objects as they were.
func CheckAt(command string, args []string) error {
	if command != "get" && command != "describe" {
		return fmt.Errorf("kubectl: --at is possible with get and describe, not with %s", command)
	}
	for _, flag := range []string{"-w", "--watch", "--watch-only"} {
		if slices.Contains(args, flag) || slices.Contains(args, flag+"=true") {
			return fmt.Errorf("kubectl: --at is not possible with %s: the past does not change", flag)
		}
	}
	return nil
}

// At makes the client read objects as they were. A server that does not answer from the past, such
// as upstream's, is an error.
func At(c *rest.Config, at string) *rest.Config {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return traveller(func(request *http.Request) (*http.Response, error) {
			if !isResource(request.URL.Path) {
				return next.RoundTrip(request)
			}
			request = request.Clone(request.Context())
			request.Header.Set(timeline.AtHeader, at)
			response, err := next.RoundTrip(request)
			if err == nil && response.StatusCode < 300 && response.Header.Get(timeline.AtHeader) == "" {
				_ = response.Body.Close()
				return nil, errors.New("the server does not know --at and answered with the present: it is no API server of knarr, or an older one")
			}
			return response, err
		})
	})
	return c
}

type traveller func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t traveller) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

// isResource reports whether a path is of objects: /api/VERSION/..., or /apis/GROUP/VERSION/....
func isResource(path string) bool {
	if i := strings.Index(path, "/api/"); i >= 0 {
		return strings.Count(strings.Trim(path[i:], "/"), "/") >= 2
	}
	if i := strings.Index(path, "/apis/"); i >= 0 {
		return strings.Count(strings.Trim(path[i:], "/"), "/") >= 3
	}
	return false
}
