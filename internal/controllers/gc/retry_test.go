package gc

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// reached is a View that has got as far as it has been told.
type reached struct {
	client.View
	now chan struct{}
}

func (r reached) WaitFor(ctx context.Context, _ int64) error {
	select {
	case <-r.now:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestHeldOwnersAreTriedWhenAKindComesBack: not when their back-off, which nothing here waits for, has passed.
func TestHeldOwnersAreTriedWhenAKindComesBack(t *testing.T) {
	for name, back := range map[string]func(k *watched, r reached){
		"its View opens, and then has got far enough": func(k *watched, r reached) {
			view := client.View(r)
			k.view.Store(&view)
			close(k.opened)
			close(r.now)
		},
		"it goes before it could be listed": func(k *watched, _ reached) { close(k.opened) },
		"it goes with its View": func(k *watched, r reached) {
			view, ended := client.View(r), make(chan struct{})
			k.view.Store(&view)
			k.ended = ended
			close(k.opened)
			close(ended)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			tried := make(chan item, 3)
			c := &collector{limit: time.Millisecond}
			c.work = controller.NewWork("test", func(_ context.Context, it item) (controller.Result, error) {
				tried <- it
				return controller.Result{}, nil
			})
			var group sync.WaitGroup
			group.Go(func() { c.work.Run(ctx, 1) })
			k := &watched{gvr: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, opened: make(chan struct{})}
			owners := []item{{name: "a", uid: "a"}, {name: "b", uid: "b"}}
			for _, owner := range append(owners, owners...) { // each is refused twice
				c.retryWith(ctx, k, owner, 7)
			}
			back(k, reached{now: make(chan struct{})})
			seen := map[item]bool{}
			for range owners {
				select {
				case it := <-tried:
					seen[it] = true
				case <-time.After(time.Minute):
					t.Fatal("nobody is tried again")
				}
			}
			if !seen[owners[0]] || !seen[owners[1]] {
				t.Errorf("tried again: %v", seen)
			}
			cancel()
			group.Wait()
			c.waiting.Wait()
		})
	}
}
