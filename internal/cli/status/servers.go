package status

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/servers"
)

// workersReach returns a worker's access to any server of its cluster, and the server in use once
// there was a request.
func workersReach(record *clusters.Record, config *rest.Config) (reach *rest.Config, used func() string) {
	pool := servers.NewPool(servers.Options{
		User: record.NodeName, Given: servers.Addresses(record.Join), Path: filepath.Join(record.DataDir, servers.File),
	})
	all := pool.Order()
	if len(all) < 2 {
		return config, func() string { return "" }
	}
	if !config.Insecure {
		if reach, _, err := servers.Config(config, pool); err == nil {
			return reach, pool.Current
		}
		return config, func() string { return "" }
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // this user may not read the CA; no secret is sent
	defer transport.CloseIdleConnections()
	address := servers.FirstReady(all, func(address string) error { return servers.Ready(transport, address, servers.ProbeTimeout) })
	if address == "" {
		address = all[0]
	}
	reach = rest.CopyConfig(config)
	reach.Host = "https://" + address
	return reach, func() string { return address }
}

// otherServer returns access to another server of the cluster, for a machine with a server that is
// not ready. It returns nil if no other one is known or ready.
func (r *Report) otherServer(record *clusters.Record, config *rest.Config) *rest.Config {
	u, err := url.Parse(config.Host)
	if err != nil {
		return nil
	}
	others := servers.Others(record.DataDir, u.Host, net.JoinHostPort(record.AdvertiseAddress, u.Port()))
	if len(others) == 0 {
		return nil
	}
	reach, transport, err := servers.Config(config, servers.NewPool(servers.Options{Given: others}))
	if err != nil {
		return nil
	}
	address := servers.FirstReady(others, func(address string) error { return servers.Ready(transport, address, servers.ProbeTimeout) })
	if address == "" {
		r.part("other servers", Bad, fmt.Sprintf("none of %d known ones is ready", len(others)))
		return nil
	}
	r.part("other servers", Fine, address+" is ready; what follows is read there")
	return reach
}
