package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/usage"
)

// NewMeter measures nodes and pods by asking kubelets.
func NewMeter(n *Connector, clock func() time.Time) *usage.Meter {
	return usage.New(usage.Config{Read: n.readUsage, Now: clock, Sleep: func(ctx context.Context, d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
}

// maxUsageBytes is more than any node's kubelet reports, in bytes.
const maxUsageBytes = 64 << 20

// readUsage reads the resource usage of a node from its kubelet.
func (n *Connector) readUsage(ctx context.Context, node string) (*usage.Reading, error) {
	location, err := n.kubeletAt(ctx, node)
	if err != nil {
		return nil, err
	}
	location.Path = "/metrics/resource"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := n.Transports().Kubelet.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the kubelet of node %s answers %s", node, resp.Status)
	}
	return usage.Parse(io.LimitReader(resp.Body, maxUsageBytes))
}
