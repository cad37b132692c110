package cli

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"

	"github.com/knarr-project/knarr/internal/servers"
)

// chooser sends kubectl's requests to another server of the cluster if the one on this machine does
// not serve. It chooses once, before the first request.
type chooser struct {
	remark func(message string)

	once sync.Once
	own  string // HOST:PORT of the kubeconfig
	to   string // HOST:PORT of the other server; "" to use its own
}

// direct returns the request to send. It only changes requests to a cluster of this machine of
// which other servers are known.
func (c *chooser) direct(e *explainer, next http.RoundTripper, host string, ca []byte, request *http.Request) *http.Request {
	c.once.Do(func() { c.choose(e, next, host, ca) })
	if c.to == "" || request.URL.Host != c.own {
		return request
	}
	sent := request.Clone(request.Context())
	sent.URL.Host, sent.Host = c.to, ""
	return sent
}

func (c *chooser) choose(e *explainer, next http.RoundTripper, host string, ca []byte) {
	if e.server != "" {
		return // the user has chosen
	}
	u, err := url.Parse(host)
	r := e.owner(host, ca)
	if err != nil || r == nil {
		return
	}
	others := servers.Others(r.DataDir, u.Host, net.JoinHostPort(r.AdvertiseAddress, u.Port()))
	if len(others) == 0 {
		return
	}
	ready := func(address string) error { return servers.Ready(next, address, servers.ProbeTimeout) }
	why := ready(u.Host)
	if why == nil {
		return
	}
	c.own, c.to = u.Host, servers.FirstReady(others, ready)
	switch {
	case c.remark == nil:
	case c.to != "":
		c.remark(elsewhere(host, "https://"+c.to, why))
	case r.Alive():
		c.remark(fmt.Sprintf("the server %s does not serve (%v), and no other known one is ready", host, why))
	}
}
