package webhook

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Asker sends reviews of other kinds to the server of a kubeconfig file, with the same retries.
type Asker struct{ server *server }

// askTimeout limits a review with all its attempts.
const askTimeout = 30 * time.Second

// NewAsker returns an Asker; backoff is the delay before the first retry.
func NewAsker(kubeconfig string, backoff time.Duration) (*Asker, error) {
	// A nil dial, since no network is configured for it, as upstream.
	s, err := newServer(kubeconfig, askTimeout, nil)
	if err != nil {
		return nil, err
	}
	s.backoff = backoff
	return &Asker{s}, nil
}

// Ask posts a review and decodes the answer into it.
func (a *Asker) Ask(ctx context.Context, review runtime.Object) error {
	return a.server.ask(ctx, review, func(error, time.Duration) {})
}
