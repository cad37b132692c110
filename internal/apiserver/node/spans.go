package node

import (
	"context"
	"fmt"
	"net/http"

	"github.com/knarr-project/knarr/internal/insight/spans"
)

// Spans asks the node agent of a node what happened to pods, by UID, and with the packet rules of
// EndpointSlices and network policies. It asks as the API server: the caller has checked which pods
// and nodes the user may see.
func (n *Connector) Spans(ctx context.Context, node string, pods, endpoints []string) ([]spans.Span, error) {
	location, err := n.kubeletAt(ctx, node)
	if err != nil {
		return nil, err
	}
	location.Path, location.RawQuery = spans.Path, spans.Query(pods, endpoints).Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := n.Transports().Kubelet.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, fmt.Errorf("the node agent of %s keeps no spans (is it knarr's?)", node)
	default:
		return nil, fmt.Errorf("the node agent of %s answers %s", node, resp.Status)
	}
	answer, err := spans.ReadAnswer(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("the answer of the node agent of %s: %w", node, err)
	}
	return answer.Spans, nil
}
