package apiserver

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/knarr-project/knarr/internal/network/nettest"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// outsideEtcd runs an etcd with its network layer and returns its URL.
func outsideEtcd(t testing.TB) string {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.UnsafeNoFsync = t.TempDir(), true
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	client, peer := url.URL{Scheme: "http", Host: nettest.FreeAddress(t)}, url.URL{Scheme: "http", Host: nettest.FreeAddress(t)}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return client.String()
}

// TestServersShareAnOutsideStore: each server has a connection of its own to etcd.
func TestServersShareAnOutsideStore(t *testing.T) {
	t.Parallel()
	at := outsideEtcd(t)
	addresses := []string{"192.0.2.1:6443", "192.0.2.2:6443", "192.0.2.3:6443"}
	servers := severalServers(t, 3, withSmallRanges, func(i int, c *Config) {
		r, err := etcd.Connect(t.Context(), etcd.RemoteOptions{Endpoints: []string{at}, Log: c.Logger})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		withEndpoints(addresses...)(i, c)
		withSmallRanges(i, c)
		c.Store = r
	})
	for _, s := range servers {
		s.startBackground()
	}
	for _, s := range servers {
		hasEndpoints(t, s, "kubernetes 192.0.2.1:6443, kubernetes 192.0.2.2:6443, kubernetes 192.0.2.3:6443 | 192.0.2.1:6443, 192.0.2.2:6443, 192.0.2.3:6443")
	}
	if got := createUntilFull(t, servers, 0, `{"type":"NodePort","ports":[{"port":80}]}`); got != 13 {
		t.Errorf("%d Services, want 13", got)
	}
	checkAllocations(t, servers[1])
	const maps = "/api/v1/namespaces/default/configmaps"
	each(servers, func(from, to *Server, name string) {
		for n := range 5 {
			object := fmt.Sprintf("m%d-%s", n, strings.ReplaceAll(name, " ", "-"))
			mustDo(t, from, 201, "POST", maps, `{"metadata":{"name":"`+object+`"}}`)
			if out := mustDo(t, to, 200, "GET", maps, ""); !strings.Contains(out, `"`+object+`"`) {
				t.Errorf("%s: a list lacks the object", name)
			}
			mustDo(t, to, 200, "DELETE", maps+"/"+object, "")
			mustDo(t, from, 404, "GET", maps+"/"+object, "")
		}
	})
	servers[0].living.leave(t.Context())
	hasEndpoints(t, servers[1], "kubernetes 192.0.2.2:6443, kubernetes 192.0.2.3:6443 | 192.0.2.2:6443, 192.0.2.3:6443")
}

// BenchmarkCreatePodInAnOutsideStore compares a server that is alone with one that waits for the
// writes of others before its own.
func BenchmarkCreatePodInAnOutsideStore(b *testing.B) {
	at, n := outsideEtcd(b), 0
	for _, alone := range []bool{true, false} {
		b.Run(fmt.Sprintf("alone=%v", alone), func(b *testing.B) {
			s := newTestServer(b, func(c *Config) {
				_ = c.Store.Close()
				r, err := etcd.Connect(b.Context(), etcd.RemoteOptions{Endpoints: []string{at}})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = r.Close() })
				c.Store, c.Alone = r, func() bool { return alone }
			})
			serve(b, s, "GET", "/api/v1/namespaces/default/pods?limit=1", "", "")
			b.ResetTimer()
			for range b.N {
				n++
				serve(b, s, "POST", "/api/v1/namespaces/default/pods", "application/json", fmt.Sprintf(benchPod, n, n))
			}
		})
	}
}
