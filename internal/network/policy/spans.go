package policy

import (
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/insight/spans"
)

// maxDue bounds the changes whose rules are awaited for traces.
const maxDue = 500

// change is a write of a NetworkPolicy or of PolicyPeers whose rules are not in the kernel yet.
type change struct {
	namespace, name string
	revision        int64
	since           time.Time
}

// changes are the writes whose rules are due, for traces. The zero value leaves out all changes
// until begin: those of the start are old. Safe for concurrent use.
type changes struct {
	mu    sync.Mutex
	begun bool
	list  []change
}

func (c *changes) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = true
}

func (c *changes) add(namespace, name string, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun && revision != 0 && len(c.list) < maxDue {
		c.list = append(c.list, change{namespace, name, revision, time.Now()})
	}
}

// take returns the changes that are due, and forgets them.
func (c *changes) take() []change {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list
	c.list = nil
	return list
}

// giveBack makes changes due again whose rules were not committed.
func (c *changes) giveBack(list []change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(list, c.list...)
	c.list = c.list[:min(len(c.list), maxDue)]
}

// inKernel keeps a span for each change whose rules are in the kernel. A policy that has changed no
// rule is of other nodes' pods. Peers can have changed none since this node knew its own pods
// before.
func (a *Agent) inKernel(list []change, changed bool) {
	now := time.Now()
	for _, c := range list {
		if c.namespace != "" && !changed {
			continue
		}
		a.cfg.Spans.Note(spans.Span{Name: spans.Rules, Namespace: c.namespace, Object: c.name, Revisions: []int64{c.revision}, Begin: c.since, End: now})
	}
}
