package encryption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/store"
)

// rewritePage is the number of values that Rewrite reads at once.
const rewritePage = 100

// Use replaces the configuration. When it returns, no write of this server that was encrypted with
// the earlier one is under way. After an error, the earlier one stays in use.
func (s *Store) Use(ctx context.Context, data []byte) error {
	s.using.Lock()
	defer s.using.Unlock()
	return s.replace(ctx, data)
}

// Rewritten is the result of Rewrite.
type Rewritten struct {
	// Seen and Changed are the numbers of values that were read, and that were encrypted again.
	Seen, Changed int
	// Next is the key to go on from; "" means that all values are done.
	Next string
	// Broken are keys whose values cannot be decrypted, 10 at most. They are left as they are.
	Broken []string
}

// Rewrite encrypts all values again that would now be encrypted differently, from a key on ("" is
// the first one), and stops after a page when the time is over. A value is written on condition
// that it has not changed since it was read, so several servers, an interruption or a leader's end
// do no harm: what another writer has written is encrypted as its server's configuration says.
func (s *Store) Rewrite(ctx context.Context, from string, until time.Time) (Rewritten, error) {
	var out Rewritten
	for _, prefix := range s.encryptedPrefixes() {
		if from >= prefix && !strings.HasPrefix(from, prefix) {
			continue // done before
		}
		at := ""
		if strings.HasPrefix(from, prefix) {
			at = from
		}
		for {
			page, err := s.Store.Range(ctx, prefix, store.RangeOptions{From: at, Limit: rewritePage})
			if err != nil {
				return out, err
			}
			for i := range page.KVs {
				if err := s.rewrite(ctx, &page.KVs[i], &out); err != nil {
					return out, err
				}
			}
			if !page.More {
				break
			}
			at = page.KVs[len(page.KVs)-1].Key + "\x00"
			if !time.Now().Before(until) {
				out.Next = at
				return out, nil
			}
		}
	}
	return out, nil
}

// rewrite encrypts one value again if it is stale, until no other writer is faster.
func (s *Store) rewrite(ctx context.Context, kv *store.KeyValue, out *Rewritten) error {
	if s.ruleOf(kv.Key) == nil {
		return nil
	}
	out.Seen++
	for kv != nil {
		done, now, err := s.rewriteOnce(ctx, kv)
		var unreadable unreadableError
		switch {
		case errors.As(err, &unreadable):
			if len(out.Broken) < 10 {
				out.Broken = append(out.Broken, kv.Key)
			}
			s.log.Error("a value cannot be decrypted, so it is not encrypted again", "key", kv.Key, "err", err)
			return nil
		case err != nil:
			return err
		case done:
			out.Changed++
			return nil
		}
		kv = now
	}
	return nil
}

type unreadableError struct{ error }

// rewriteOnce writes a stale value. now is the value to look at next; nil means that there is no
// more to do.
func (s *Store) rewriteOnce(ctx context.Context, kv *store.KeyValue) (done bool, now *store.KeyValue, err error) {
	s.using.RLock()
	defer s.using.RUnlock()
	r := s.ruleOf(kv.Key)
	if r == nil {
		return false, nil, nil
	}
	named, of := s.withResource(ctx, kv.Key), s.valueContext(kv.Key)
	plain, stale, err := r.TransformFromStorage(named, kv.Value, of)
	switch {
	case errors.Is(err, errNoProvider) && !encrypted(kv.Value):
		plain, stale = kv.Value, true // from before encryption
	case err != nil && (temporary(err) || ctx.Err() != nil):
		return false, nil, fmt.Errorf("decrypt %s: %w: %w", kv.Key, store.ErrUnavailable, err)
	case err != nil:
		return false, nil, unreadableError{err}
	}
	if !stale {
		return false, nil, nil
	}
	sealed, err := r.TransformToStorage(named, plain, of)
	if err != nil {
		return false, nil, fmt.Errorf("encrypt %s: %w", kv.Key, err)
	}
	unchanged := []store.Condition{{Key: kv.Key, ModRevision: kv.ModRevision}}
	result, err := s.Store.Commit(ctx, unchanged, store.Op{Key: kv.Key, Value: sealed, Lease: kv.Lease})
	switch {
	case errors.Is(err, store.ErrLeaseNotFound):
		return false, nil, nil // the value expires at this moment
	case err != nil || result.Succeeded:
		return err == nil, nil, err
	}
	return false, result.Current[0], nil
}

// encryptedPrefixes returns the prefixes of all keys that rules name, sorted, none below another.
func (s *Store) encryptedPrefixes() []string {
	of := map[schema.GroupResource]string{}
	for prefix, gr := range s.builtin {
		of[gr] = prefix + "/"
	}
	set := map[string]bool{}
	for _, r := range s.rules.Load().list {
		prefix, ok := of[r.resource]
		switch {
		case r.resource.Resource == "*" || r.resource.Group == "*":
			return []string{"/registry/"}
		case !ok:
			prefix = "/registry/" + r.resource.Group + "/" + r.resource.Resource + "/"
		}
		set[prefix] = true
	}
	return slices.Sorted(maps.Keys(set))
}
