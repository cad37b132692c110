package controlplane

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver"
)

// insightPeers are the other servers of the cluster, whose causal logs have their writes.
func (s *Server) insightPeers(ctx context.Context) (peers []apiserver.Peer, err error) {
	if s.alone() {
		return nil, nil
	}
	all, err := s.describedServers(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if info := all[name]; name != s.cfg.NodeName && info.URL != "" {
			peers = append(peers, apiserver.Peer{Name: name, URL: info.URL})
		}
	}
	return peers, nil
}

// insightClient asks other servers for users. The cluster's front proxy certificate lets it name
// the user.
func (s *Server) insightClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: s.keys.ClientTLS(s.keys.FrontProxyClient), ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 3 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
