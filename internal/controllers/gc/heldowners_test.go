package gc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// reached is a View whose WaitFor fails until the View has reached the revision.
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

// away is a server that fails every list until it is back.
type away struct {
	client.Interface
	back *atomic.Bool
}

func (a away) List(context.Context, schema.GroupVersionResource, string, metav1.ListOptions) (runtime.Object, error) {
	if a.back.Load() {
		return nil, nil
	}
	return nil, errors.New("the server is away")
}

// The owners must be tried again at once, not after their back-off, for which this test does not
// wait.
func TestHeldOwnersAreRetriedWhenAKindCanBeListedAgain(t *testing.T) {
	for name, back := range map[string]func(k *watched, r reached, server *atomic.Bool){
		"its server has lower revisions and can be listed again": func(k *watched, r reached, server *atomic.Bool) {
			view := client.View(r)
			k.view.Store(&view)
			close(k.opened)
			server.Store(true)
		},
		"its View opens, and then has got far enough": func(k *watched, r reached, _ *atomic.Bool) {
			view := client.View(r)
			k.view.Store(&view)
			close(k.opened)
			close(r.now)
		},
		"it goes before it could be listed": func(k *watched, _ reached, _ *atomic.Bool) { close(k.opened) },
		"it goes with its View": func(k *watched, r reached, _ *atomic.Bool) {
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
			server := new(atomic.Bool)
			c := &collector{limit: time.Millisecond, env: controller.Env{Client: away{back: server}}}
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
			back(k, reached{now: make(chan struct{})}, server)
			seen := map[item]bool{}
			for range owners {
				select {
				case it := <-tried:
					seen[it] = true
				case <-time.After(time.Minute):
					t.Fatal("no owner is retried")
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
