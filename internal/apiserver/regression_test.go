package apiserver

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store/storetest"
)

// What other API servers had wrong, each class as a test of its own: go test -run Regression ./internal/... finds them all.

// k/k#123072 and like it. The client has learned of a revision elsewhere, from another server of the same store, and watches from there at a server that has
// not got it yet, beside somebody who watches the same already.
func TestRegressionDoubledEventsOnAServerThatIsBehind(t *testing.T) {
	ahead := newTestServer(t)
	behind := storetest.Lag(ahead.cfg.Store)
	s := newTestServer(t, func(c *Config) { c.Store = behind })
	url, one, two := secure(t, s)
	if _, err := s.endpoints.registry("", "configmaps").cache(t.Context()); err != nil { // from here on it knows what happens
		t.Fatal(err)
	}
	c := ahead.Client(auth.Component("tester"))
	for proto, by := range map[int]*http.Client{1: one, 2: two} {
		t.Run(fmt.Sprintf("HTTP/%d", proto), func(t *testing.T) {
			first, err := client.Create(t.Context(), c, configMap(fmt.Sprint("first-", proto)))
			if err != nil {
				t.Fatal(err)
			}
			early, _ := linesBy(t, by, proto, url+defaultMaps+"?watch=1&resourceVersion="+first.ResourceVersion)
			if _, err := client.Create(t.Context(), c, configMap(fmt.Sprint("second-", proto))); err != nil {
				t.Fatal(err)
			}
			if _, obj := event(t, early()); obj.Name != fmt.Sprint("second-", proto) {
				t.Fatalf("the first event is of %s", obj.Name)
			}
			pass := behind.Hold()
			defer pass()
			seen, err := client.Create(t.Context(), c, configMap(fmt.Sprint("seen-", proto)))
			if err != nil {
				t.Fatal(err)
			}
			late, _ := linesBy(t, by, proto, url+defaultMaps+"?watch=1&resourceVersion="+seen.ResourceVersion)
			pass()
			if _, err := client.Create(t.Context(), c, configMap(fmt.Sprint("unseen-", proto))); err != nil {
				t.Fatal(err)
			}
			if _, obj := event(t, early()); obj.Name != seen.Name {
				t.Errorf("the early watch gets %s, expected %s", obj.Name, seen.Name)
			}
			if _, obj := event(t, late()); obj.Name != fmt.Sprint("unseen-", proto) {
				t.Errorf("the watch from %s on gets %s of %s", seen.ResourceVersion, obj.Name, obj.ResourceVersion)
			}
		})
	}
}
