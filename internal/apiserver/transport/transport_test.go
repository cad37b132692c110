package transport

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// configTo is a configuration that logs to a buffer.
func configTo(log *bytes.Buffer) Config {
	return Config{Pool: taskpool.NewPool(), Logger: slog.New(slog.NewTextHandler(log, nil))}
}

func TestThisVersionOfTheLibrariesIsKnown(t *testing.T) {
	if err := knownLayout(); err != nil {
		t.Errorf("the fast transport cannot be used: %v", err)
	}
}

func TestAnUnknownLayoutFallsBackToThePlainTransportWithOneLine(t *testing.T) {
	var log bytes.Buffer
	unknown := func() error { return errors.New("tls.Conn has no field hand") }
	got, err := choose(Fast, configTo(&log), unknown)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := got.(plain); !ok {
		t.Errorf("the transport is %T", got)
	}
	line := log.String()
	if strings.Count(line, "\n") != 1 || !strings.Contains(line, "tls.Conn has no field hand") {
		t.Errorf("it logs %q", line)
	}
}

func TestThePlainTransportAsksForNoLayout(t *testing.T) {
	var log bytes.Buffer
	got, err := choose(Plain, configTo(&log), func() error { return errors.New("unknown") })
	if _, ok := got.(plain); !ok || err != nil || log.Len() > 0 {
		t.Errorf("%T, %v, logs %q", got, err, log.String())
	}
}

func TestAKindHasToBeKnown(t *testing.T) {
	for kind, want := range map[Kind]string{"": "", Fast: "", Plain: "", "slow": `transport "slow": must be "fast" or "plain"`} {
		_, err := New(kind, configTo(new(bytes.Buffer)))
		if got := ""; err != nil {
			if got = err.Error(); got != want {
				t.Errorf("%q: %s", kind, got)
			}
		} else if want != "" {
			t.Errorf("%q is accepted", kind)
		}
	}
}

func TestOnlyTheFastTransportDetachesResponses(t *testing.T) {
	onEachVersion(t, func(t *testing.T, s *server, by *http.Client) {
		body, wr := s.write(t, by)
		defer body.Close()
		_, isPlain := s.Transport.(plain)
		if detached := wr.out != nil; detached == isPlain {
			t.Errorf("detached: %t", detached)
		}
		wr.write("")
		<-wr.done
	})
}
