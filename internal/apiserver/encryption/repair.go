package encryption

import (
	"context"
	"sync"
)

// repair remembers which values were told undecrypted, because a plugin did not answer at that moment.
type repair struct {
	mu     sync.Mutex
	broken map[string]string // prefix of a resource → one of its keys
	again  func(ctx context.Context, prefix string) error
	wake   chan struct{} // when broken was empty and is not any more
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
	s.broken[prefix] = key
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
	broken := make(map[string]string, len(s.broken))
	for prefix, key := range s.broken {
		broken[prefix] = key
	}
	s.mu.Unlock()
	for prefix, key := range broken {
		if _, _, err := s.Get(ctx, key, 0); err != nil {
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
			s.noteBroken(key, err)
			continue
		}
		s.log.Info("objects can be decrypted again", "prefix", prefix)
	}
}
