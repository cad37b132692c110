package cli

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/servers"
)

// anyServer returns an administrator's configuration whose requests go to the server on this
// machine, or to another one of the cluster if that one does not serve.
func anyServer(admin *rest.Config, dataDir string) (*rest.Config, *servers.Pool, error) {
	u, err := url.Parse(admin.Host)
	if err != nil {
		return nil, nil, err
	}
	pool := servers.NewPool(servers.Options{Local: u.Host, Path: filepath.Join(dataDir, servers.File)})
	reach, _, err := servers.Config(admin, pool)
	return reach, pool, err
}

// serverReachable is serverHere for commands that another server of the cluster can serve.
func serverReachable(c *config.Config) error {
	err := serverHere(c)
	if err == nil || !readable(c.AdminKubeconfig()) {
		return err
	}
	at, parseErr := netip.ParseAddrPort(c.Listen)
	if parseErr != nil || len(servers.Others(c.DataDir, net.JoinHostPort(c.AdvertiseAddress, fmt.Sprint(at.Port())))) == 0 {
		return err
	}
	return nil
}

// joinURLs returns the value of --join for another machine: the advertised address with the port of
// the local URL, then the other living servers.
func joinURLs(local, advertised string, pool *servers.Pool) string {
	port := config.DefaultPort
	if u, err := url.Parse(local); err == nil && u.Port() != "" {
		port = u.Port()
	}
	all := []string{net.JoinHostPort(advertised, port)}
	for _, address := range pool.Living() {
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	for i, address := range all {
		all[i] = "https://" + address
	}
	return strings.Join(all, ",")
}

// elsewhere is the remark of a command that uses another server.
func elsewhere(own, other string, why error) string {
	return fmt.Sprintf("the server %s does not serve (%v); using %s", own, why, other)
}
