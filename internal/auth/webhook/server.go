package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// server is the other side, as a kubeconfig file names it.
type server struct {
	url     string
	http    *http.Client
	timeout time.Duration
	backoff time.Duration // before the first retry
}

// A review is tried that often; what it may answer is bounded.
const (
	attempts   = 5
	maxAnswer  = 3 << 20
	firstPause = 500 * time.Millisecond
)

func newServer(kubeconfig string, timeout time.Duration) (*server, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	return &server{url: config.Host, http: c, timeout: timeout, backoff: firstPause}, nil
}

// ask posts a review and reads the answer into it.
func (s *server) ask(ctx context.Context, review any) error {
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	pause := s.backoff
	for attempt := 1; ; attempt++ {
		again, err := s.once(ctx, body, review)
		if err == nil || !again || attempt == attempts {
			return err
		}
		select {
		case <-time.After(pause):
			pause = pause * 3 / 2
		case <-ctx.Done():
			return err
		}
	}
}

func (s *server) once(ctx context.Context, body []byte, answer any) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return true, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return true, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, fmt.Errorf("the webhook answers %s", resp.Status)
	}
	return false, json.Unmarshal(data, answer)
}
