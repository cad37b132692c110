package credentials

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// tokens keeps the tokens that were requested for one plugin, until a fifth of their life is left.
type tokens struct {
	mu   sync.Mutex
	kept map[tokenKey]token
}

type token struct {
	value string
	until time.Time
}

func (t *tokens) get(ctx context.Context, p *Providers, pod *corev1.Pod, account *corev1.ServiceAccount, audience string) (string, error) {
	key, now := tokenKey{pod.UID, account.UID}, p.Now()
	t.mu.Lock()
	have, ok := t.kept[key]
	t.mu.Unlock()
	if ok && now.Before(have.until) {
		return have.value, nil
	}
	value, expire, err := p.Token(ctx, pod, account, audience)
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept == nil || len(t.kept) >= maxKept {
		t.kept = map[tokenKey]token{} // they are only requested again
	}
	t.kept[key] = token{value, now.Add(expire.Sub(now) / 5 * 4)}
	return value, nil
}
