package run

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/config"
)

// validateJoin refuses an invalid token before anything starts. A machine that has joined needs
// none.
func validateJoin(cfg *config.Config) error {
	if hasJoined(cfg) {
		return nil
	}
	token, err := cfg.JoinToken()
	if err != nil {
		return err
	}
	if token == "" {
		return errors.New("--token-file is missing: this machine has not joined yet; `knarr token create` on a server makes a token")
	}
	_, _, err = splitToken(token)
	return err
}

// hasJoined reports whether an earlier join has stored the node's certificate.
func hasJoined(cfg *config.Config) bool {
	// A data folder of an earlier version has node.crt.
	for _, name := range []string{"node.pem", "node.crt"} {
		if _, err := os.Stat(cfg.Path("pki", name)); err == nil {
			return true
		}
	}
	return false
}

// unreachable returns advice for a server that does not answer.
func unreachable(err error, u *url.URL) string {
	var name *net.DNSError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &name):
		return ": this machine does not know the name; give the server's address"
	case errors.As(err, &record):
		return ": the program that answers there does not speak TLS; is it the API server's port?"
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Sprintf(": nothing listens at port %s there; does the server run, and not with --listen 127.0.0.1?", u.Port())
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return ": no route leads there"
	}
	return ""
}
