package policy

import (
	"context"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/network/peers"
)

// publishPatience is how long the agent waits, once, for the members of a group that no policy used
// before. Until then the old rules stay. Afterwards the group has no members until they come.
const publishPatience = 500 * time.Millisecond

// subscription is the watch of a group that the policies of this node's pods use.
type subscription struct {
	end  context.CancelFunc
	done chan struct{} // closed when its goroutine has ended

	mu    sync.Mutex // guards view
	view  client.View
	ready chan struct{} // closed when the group is published
	asked bool          // the agent has waited for ready; the loop's goroutine owns it
}

// follow opens the watches of the needed groups and ends all others. It reports whether it has
// opened one.
func (a *Agent) follow(ctx context.Context, needs map[string]bool) (opened bool) {
	for id, s := range a.groups {
		if !needs[id] {
			s.end()
			<-s.done
			delete(a.groups, id)
		}
	}
	for id := range needs {
		if a.groups[id] != nil {
			continue
		}
		opened = true
		ctx, end := context.WithCancel(ctx)
		s := &subscription{end: end, done: make(chan struct{}), ready: make(chan struct{})}
		a.groups[id] = s
		known := a.offered
		go func() {
			defer close(s.done)
			s.run(ctx, a.cfg.Client, id, known, func(name string, revision int64) {
				a.due.add("", name, revision)
				a.wakeUp()
			})
		}()
	}
	return opened
}

// run watches a group until ctx ends. changed is told of each change, with revision 0 until the
// group is published: the agent waits for that with the policy.
func (s *subscription) run(ctx context.Context, c client.Interface, id string, known bool, changed func(name string, revision int64)) {
	scope := peers.Scope(id)
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		var err error
		// The definition may not exist yet. A View over HTTPS would hide that and wait long.
		if !known {
			_, err = c.List(ctx, peers.Resource, "", metav1.ListOptions{LabelSelector: scope.LabelSelector, Limit: 1})
		}
		if err == nil {
			var view client.View
			if view, err = c.View(ctx, peers.Resource, scope); err == nil {
				s.mu.Lock()
				s.view = view
				s.mu.Unlock()
				break
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
	published := false
	_, done := s.view.Subscribe(ctx, func(e client.Event) {
		m, ok := e.Object.(metav1.Object)
		switch {
		case published && ok:
			changed(m.GetName(), e.Revision)
			return
		case ok && strings.HasSuffix(m.GetName(), peers.LastSuffix):
			published = true
			close(s.ready)
		}
		changed("", 0)
	})
	<-done
}

// await waits until new groups are published, but not for long. At the start the kernel has the
// rules of an earlier process, so there is more time.
func (a *Agent) await(ctx context.Context, starting bool) {
	patience := publishPatience
	if starting {
		patience = a.cfg.Patience / 2
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, s := range a.groups {
		if s.asked {
			continue
		}
		select {
		case <-s.ready:
		case <-timer.C:
			for _, s := range a.groups {
				s.asked = true
			}
			return
		case <-ctx.Done():
			return
		}
		s.asked, a.offered = true, true
	}
}

// published returns the members of the groups that are watched.
func (a *Agent) published() map[string]peers.Members {
	out := map[string]peers.Members{}
	for id, s := range a.groups {
		s.mu.Lock()
		view := s.view
		s.mu.Unlock()
		if view != nil {
			out[id] = peers.Read(view.List("", nil))
		}
	}
	return out
}
