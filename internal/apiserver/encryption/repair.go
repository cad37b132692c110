package encryption

import (
	"context"
	"maps"
	"sync"
)

// repair tracks values that a stream returned encrypted, because a plugin did not answer at that
// moment.
type repair struct {
	mu       sync.Mutex
	broken   map[string]brokenValue // by the prefix of a resource
	onRepair func(ctx context.Context, prefix string) error
	wake     chan struct{} // signalled when broken becomes non-empty
}

// brokenValue is one of the values that could not be decrypted, and its store.
type brokenValue struct {
	key   string
	store *Store
}

// OnRepair sets the function to call when values below a prefix (/registry/secrets) that a stream
// returned encrypted can be read again. The function lists them again. It is called again until it
// succeeds.
func (s *Store) OnRepair(again func(ctx context.Context, prefix string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRepair = again
}

func (s *Store) addBroken(key string, cause error) {
	s.log.Warn("a changed object cannot be decrypted until its key management service answers", "key", key, "err", cause)
	_, prefix, _ := s.resourceOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.broken) == 0 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	s.broken[prefix] = brokenValue{key, s}
}

func (s *Store) isBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.broken) > 0
}

// retryBroken tries to read the broken values.
func (s *Store) retryBroken(ctx context.Context) {
	s.mu.Lock()
	again := s.onRepair
	broken := maps.Clone(s.broken)
	s.mu.Unlock()
	for prefix, value := range broken {
		if _, _, err := value.store.Get(ctx, value.key, 0); err != nil {
			continue
		}
		// Delete the entry first: changes from here on add it again, and must not be lost.
		s.mu.Lock()
		delete(s.broken, prefix)
		s.mu.Unlock()
		if again == nil {
			continue
		}
		if err := again(ctx, prefix); err != nil {
			value.store.addBroken(value.key, err)
			continue
		}
		s.log.Info("objects can be decrypted again", "prefix", prefix)
	}
}
