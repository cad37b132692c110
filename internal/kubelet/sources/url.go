package sources

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const maxManifest = 10 << 20

// URL is a manifest that is fetched periodically.
type URL struct {
	Address, NodeName string
	Header            http.Header
	Period            time.Duration
	Log               *slog.Logger
}

// Run passes the manifest's pods to sink after each successful fetch, until ctx ends.
func (u *URL) Run(ctx context.Context, sink func([]*corev1.Pod)) {
	tick := time.NewTicker(u.Period)
	defer tick.Stop()
	for {
		pods, err := u.read(ctx)
		if err == nil {
			sink(pods)
		} else if ctx.Err() == nil {
			u.Log.Warn("cannot fetch the manifest of static pods", "url", u.Address, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (u *URL) read(ctx context.Context) ([]*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.Address, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range u.Header {
		req.Header[k] = v
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s", resp.Status)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest))
	if err != nil {
		return nil, err
	}
	return parse(raw, "http", u.Address, u.NodeName)
}
