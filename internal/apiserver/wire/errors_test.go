package wire

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/knarr-project/knarr/internal/store"
)

// Upstream answers 500 with etcd's text and without a reason, so clients try again.
func TestAFullStoreIsAnsweredLikeUpstreams(t *testing.T) {
	reason := store.ErrNoSpace.Error() + ": 33.0 MiB of the store's quota of 32.0 MiB are in use"
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"the embedded store": {&store.NoSpaceError{Reason: reason}, reason},
		"an outside etcd":    {store.ErrNoSpace, "etcdserver: mvcc: database space exceeded"},
	} {
		status := StatusOf(StoreError(fmt.Errorf("commit /registry/secret/key: %w", c.err)))
		if status.Code != http.StatusInternalServerError || status.Message != c.want || status.Reason != "" {
			t.Errorf("%s: got %+v", name, status)
		}
	}
}
