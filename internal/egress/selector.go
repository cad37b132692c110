package egress

import (
	"context"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/trace"
)

// Dial connects to an address HOST:PORT. It has the type of http.Transport's DialContext.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// dialTimeout is the time limit of a connection including the proxy's part, the same as for a
// direct one.
const dialTimeout = 30 * time.Second

// Selector knows how to reach each Network. A nil Selector has no configuration. It is safe for
// concurrent use.
type Selector struct {
	dialers map[Network]Dial
	metrics *metrics
}

// To returns the dial function of a network, or nil if the network is not configured.
func (s *Selector) To(network Network) Dial {
	if s == nil {
		return nil
	}
	return s.dialers[network]
}

// Or returns the dial function of a network, or direct if the network is not configured.
func (s *Selector) Or(network Network, direct Dial) Dial {
	if dialer := s.To(network); dialer != nil {
		return dialer
	}
	return direct
}

// self is the address of this server inside its own cluster. The server connects to itself without
// a proxy.
const self = "kubernetes.default.svc:443"

// Webhook returns the dial function of a webhook whose URL has that host.
func (s *Selector) Webhook(host string, direct Dial) Dial {
	if host == self {
		return direct
	}
	return s.Or(ControlPlane, direct)
}

// ServiceWebhook returns the dial function of a webhook behind a Service.
func (s *Selector) ServiceWebhook(namespace, name string, port int32, direct Dial) Dial {
	if namespace == "default" && name == "kubernetes" && port == 443 {
		return direct
	}
	return s.Or(Cluster, direct)
}

// Collectors returns the metrics of connections through proxies, under upstream's names.
func (s *Selector) Collectors() []prometheus.Collector {
	if s == nil {
		return nil
	}
	return s.metrics.all()
}

// proxy is the client side of one proxy protocol.
type proxy interface {
	// reach connects to the proxy. It returns ask, which requests a connection to an address. ctx
	// limits both.
	reach(ctx context.Context) (ask func(ctx context.Context, address string) (net.Conn, error), err error)
}

func (s *Selector) counted(p proxy, l labels) Dial {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		ctx, span := trace.Start(ctx, "Proxy via "+l.protocol+" protocol over "+l.transport)
		if span.On() {
			span.Set(trace.Text("address", address))
		}
		defer span.End()
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		began := time.Now()
		s.metrics.started(l)
		ask, err := p.reach(ctx)
		if err != nil {
			s.metrics.failed(l, "connect")
			return nil, err
		}
		conn, err := ask(ctx, address)
		if err != nil {
			s.metrics.failed(l, "proxy")
			return nil, err
		}
		s.metrics.took(l, time.Since(began))
		return conn, nil
	}
}
