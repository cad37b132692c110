package volume

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
)

// objectKey identifies an object that volumes show.
type objectKey struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// objects follows the ConfigMaps and Secrets of mounted volumes, each by a View of one name,
// because a node may only watch the objects of its own pods. It closes the Views of objects without
// users.
type objects struct {
	client  client.Interface
	log     *slog.Logger
	changed func(pod types.UID)

	mu      sync.Mutex // guards what follows
	ctx     context.Context
	watched map[objectKey]*watched
	running sync.WaitGroup
}

type watched struct {
	users  map[types.UID]bool
	cancel context.CancelFunc
	view   client.View    // nil until the View is open
	fixed  runtime.Object // an immutable object, which is never read again
}

func newObjects(c client.Interface, log *slog.Logger, changed func(types.UID)) *objects {
	return &objects{client: c, log: log, changed: changed, watched: map[objectKey]*watched{}}
}

// run allows Views to be opened until ctx ends, and then waits for them.
func (o *objects) run(ctx context.Context) {
	o.mu.Lock()
	o.ctx = ctx
	for key, entry := range o.watched {
		o.watch(key, entry)
	}
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	o.ctx = nil
	o.mu.Unlock()
	o.running.Wait()
}

// use registers the pod as a user of the object. object is the version just read, or nil if it does
// not exist.
func (o *objects) use(key objectKey, pod types.UID, object runtime.Object, immutable bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	entry := o.watched[key]
	if entry == nil {
		entry = &watched{users: map[types.UID]bool{}}
		o.watched[key] = entry
	}
	entry.users[pod] = true
	if immutable {
		entry.fixed = object
		if entry.cancel != nil {
			entry.cancel()
			entry.cancel, entry.view = nil, nil
		}
		return
	}
	if entry.cancel == nil && entry.fixed == nil {
		o.watch(key, entry)
	}
}

// watch opens the View in the background. The caller holds the lock.
func (o *objects) watch(key objectKey, entry *watched) {
	if o.ctx == nil || o.ctx.Err() != nil || entry.cancel != nil || entry.fixed != nil {
		return
	}
	ctx, cancel := context.WithCancel(o.ctx)
	entry.cancel = cancel
	o.running.Go(func() {
		backoff := 100 * time.Millisecond
		for {
			scope := client.Scope{Namespace: key.namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", key.name).String()}
			view, err := o.client.View(ctx, key.resource, scope)
			if err == nil {
				o.follow(ctx, entry, view)
				return
			}
			if ctx.Err() != nil {
				return
			}
			o.log.Warn("cannot watch an object of mounted volumes; their updates are delayed", "resource", key.resource.Resource,
				"namespace", key.namespace, "name", key.name, "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(backoff):
			}
			backoff = min(2*backoff, 30*time.Second)
		}
	})
}

func (o *objects) follow(ctx context.Context, entry *watched, view client.View) {
	o.mu.Lock()
	entry.view = view
	o.mu.Unlock()
	_, done := view.Subscribe(ctx, func(client.Event) {
		for _, pod := range o.usersOf(entry) {
			o.changed(pod)
		}
	})
	<-done
}

func (o *objects) usersOf(entry *watched) []types.UID {
	o.mu.Lock()
	defer o.mu.Unlock()
	users := make([]types.UID, 0, len(entry.users))
	for user := range entry.users {
		users = append(users, user)
	}
	return users
}

// known returns the object from its View. ok is false if the View does not know yet and the caller
// must read the object.
func (o *objects) known(key objectKey) (object runtime.Object, exists, ok bool) {
	o.mu.Lock()
	entry := o.watched[key]
	var view client.View
	var fixed runtime.Object
	if entry != nil {
		view, fixed = entry.view, entry.fixed
	}
	o.mu.Unlock()
	if fixed != nil {
		return fixed, true, true
	}
	if view == nil {
		return nil, false, false
	}
	object, exists = view.Get(key.namespace, key.name)
	return object, exists, true
}

// release removes the pod from the users of every object.
func (o *objects) release(pod types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, entry := range o.watched {
		if !entry.users[pod] {
			continue
		}
		delete(entry.users, pod)
		if len(entry.users) == 0 {
			if entry.cancel != nil {
				entry.cancel()
			}
			delete(o.watched, key)
		}
	}
}
