package encryption

import (
	"context"
	"maps"
	"sync"
)

// repair remembers which values were told undecrypted, because a plugin did not answer at that moment.
type repair struct {
	mu     sync.Mutex
	broken map[string]unread // by the prefix of a resource
	again  func(ctx context.Context, prefix string) error
	wake   chan struct{} // when broken was empty and is not any more
}

// unread is one of the values that could not be decrypted, and where it lies.
type unread struct {
	key string
	in  *Store
}

// OnRepair sets what is called when values below a prefix (/registry/secrets), which a stream has told undecrypted, can be read again.
// Whoever keeps what the stream says lists them then. It is called again until it gives no error.
func (s *Store) OnRepair(again func(ctx context.Context, prefix string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again = again
}

func (s *Store) noteBroken(key string, cause error) {
	s.log.Warn("a changed object can not be decrypted now; it will be once its key management service answers", "key", key, "err", cause)
	_, prefix, _ := s.resourceOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.broken) == 0 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	s.broken[prefix] = unread{key, s}
}

func (s *Store) isBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.broken) > 0
}

// mend tries what is broken once more.
func (s *Store) mend(ctx context.Context) {
	s.mu.Lock()
	again := s.again
	broken := maps.Clone(s.broken)
	s.mu.Unlock()
	for prefix, value := range broken {
		if _, _, err := value.in.Get(ctx, value.key, 0); err != nil {
			continue
		}
		// Changes that come from here on are noted anew: they would be missed if they were forgotten afterwards.
		s.mu.Lock()
		delete(s.broken, prefix)
		s.mu.Unlock()
		if again == nil {
			continue
		}
		if err := again(ctx, prefix); err != nil {
			value.in.noteBroken(value.key, err)
			continue
		}
		s.log.Info("objects can be decrypted again", "prefix", prefix)
	}
}
