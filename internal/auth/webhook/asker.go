package webhook

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Asker puts other questions than those of this package to the server of a kubeconfig file, with the same patience.
type Asker struct{ server *server }

// askTimeout bounds a question with all its attempts.
const askTimeout = 30 * time.Second

// NewAsker takes how long to wait before the first retry.
func NewAsker(kubeconfig string, backoff time.Duration) (*Asker, error) {
	s, err := newServer(kubeconfig, askTimeout, nil) // as upstream: no network is named for it
	if err != nil {
		return nil, err
	}
	s.backoff = backoff
	return &Asker{s}, nil
}

// Ask posts a review and reads the answer into it.
func (a *Asker) Ask(ctx context.Context, review runtime.Object) error {
	return a.server.ask(ctx, review, func(error, time.Duration) {})
}
