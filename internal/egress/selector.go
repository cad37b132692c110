package egress

import (
	"context"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/trace"
)

// Dial connects to an address, HOST:PORT. It is what http.Transport calls DialContext.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// patience is how long a connection may take, the proxy's part included: as long as a direct one.
const patience = 30 * time.Second

// Selector knows the way to each Network. A nil one has no say in any. Safe for concurrent use.
type Selector struct {
	ways    map[Network]Dial
	metrics *metrics
}

// To is the way to a network; nil where the configuration has none.
func (s *Selector) To(network Network) Dial {
	if s == nil {
		return nil
	}
	return s.ways[network]
}

// Or is the way to a network, direct where the configuration has none.
func (s *Selector) Or(network Network, direct Dial) Dial {
	if way := s.To(network); way != nil {
		return way
	}
	return direct
}

// self is where this server is found by its own cluster. It asks itself without a proxy.
const self = "kubernetes.default.svc:443"

// Webhook is the way to a webhook that is named by a URL with that host.
func (s *Selector) Webhook(host string, direct Dial) Dial {
	if host == self {
		return direct
	}
	return s.Or(ControlPlane, direct)
}

// ServiceWebhook is the way to a webhook behind a Service.
func (s *Selector) ServiceWebhook(namespace, name string, port int32, direct Dial) Dial {
	if namespace == "default" && name == "kubernetes" && port == 443 {
		return direct
	}
	return s.Or(Cluster, direct)
}

// Collectors are the metrics of connections through proxies, under upstream's names.
func (s *Selector) Collectors() []prometheus.Collector {
	if s == nil {
		return nil
	}
	return s.metrics.all()
}

// proxy is a way through somebody else.
type proxy interface {
	// reach connects to the proxy itself, and returns how it is asked for an address. ctx bounds both.
	reach(ctx context.Context) (ask func(ctx context.Context, address string) (net.Conn, error), err error)
}

func (s *Selector) counted(p proxy, l labels) Dial {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		ctx, span := trace.Start(ctx, "Proxy via "+l.protocol+" protocol over "+l.transport)
		if span.On() {
			span.Set(trace.Text("address", address))
		}
		defer span.End()
		ctx, cancel := context.WithTimeout(ctx, patience)
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
