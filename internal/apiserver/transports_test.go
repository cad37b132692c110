package apiserver

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/transport"
	"github.com/knarr-project/knarr/internal/auth"
)

// onEachTransport runs a test on a server with the fast transport, and on one with the plain one.
func onEachTransport(t *testing.T, test func(t *testing.T, s *Server), change ...func(*Config)) {
	t.Helper()
	for _, kind := range []transport.Kind{transport.Fast, transport.Plain} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			set := func(c *Config) { c.Transport = kind }
			test(t, newTestServer(t, append(slices.Clone(change), set)...))
		})
	}
}

func TestWatchEndsWhenItsClientHangsUp(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, one, two := secure(t, s)
		for proto, by := range map[int]*http.Client{1: one, 2: two} {
			next, hangUp := linesBy(t, by, proto, url+defaultMaps+"?watch=1")
			mustCreate(t, s.Client(auth.Component("tester")), configMap(fmt.Sprint("made-", proto)))
			if line := next(); line == "" {
				t.Fatal("the watch ended early")
			}
			openHubs(t, s, 1)
			hangUp()
			openHubs(t, s, 0)
		}
	})
}

// openHubs waits until the server has this number of watch hubs.
func openHubs(t *testing.T, s *Server, want int) {
	t.Helper()
	eventually(t, func() error {
		if _, n := s.watches.Count(); n != want {
			return fmt.Errorf("%d watch hubs are open, want %d", n, want)
		}
		return nil
	})
}

func TestPlainTransportServesWatchesInTheirHandlers(t *testing.T) {
	s := newTestServer(t, func(c *Config) { c.Transport = transport.Plain })
	url, one, two := secure(t, s)
	for proto, by := range map[int]*http.Client{1: one, 2: two} {
		_, hangUp := linesBy(t, by, proto, url+defaultMaps+"?watch=1")
		openHubs(t, s, 1)
		without(t, s, 0)
		hangUp()
		openHubs(t, s, 0)
	}
}

func TestUnknownTransportIsRefused(t *testing.T) {
	valid := newTestServer(t)
	if _, err := New(Config{Store: valid.cfg.Store, Transport: "slow"}); err == nil {
		t.Error("it was accepted")
	}
}

// Go's HTTP server cancels the contexts of a connection's later requests when reading from its
// client ends, as the end of a watch does.
func TestRequestsAfterAWatchOfTheSameClientAreServed(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, one, two := secure(t, s)
		for proto, by := range map[int]*http.Client{1: one, 2: two} {
			for _, path := range []string{defaultMaps, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"} {
				next, _ := linesBy(t, by, proto, url+path+"?watch=1&timeoutSeconds=1&resourceVersion=0")
				for next() != "" {
				}
				body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"after-%d-"}}`, proto)
				resp, err := by.Post(url+defaultMaps, "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusCreated {
					t.Errorf("HTTP/%d, after a watch of %s: %s", proto, path, resp.Status)
				}
			}
		}
	})
}

// See TestRequestsAfterWatchOfTheSameClientAreServed: a request's deadline ends reading as well.
func TestRequestsAfterOneThatTimedOutAreServed(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		s.Use(Security{Authorizer: allowAll{}, Paths: map[string]http.Handler{
			"/late": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				time.Sleep(10 * time.Millisecond) // reading from the client ends meanwhile
				w.WriteHeader(http.StatusGatewayTimeout)
			}),
			"/next": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if err := r.Context().Err(); err != nil {
					t.Errorf("%s: the next request's context: %v", r.Proto, err)
				}
			}),
		}})
		url, one, two := secure(t, s)
		for _, by := range []*http.Client{one, two} {
			for _, path := range []string{"/late", "/next"} {
				resp, err := by.Get(url + path)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
	}, func(c *Config) { c.RequestTimeout = 300 * time.Millisecond })
}
