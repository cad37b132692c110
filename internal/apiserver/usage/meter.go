package usage

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// fresh is how long a usage is given to whoever asks.
	fresh = 5 * time.Second
	// shortest is what two readings must be apart: a kubelet of ours does not measure more often than once a second.
	shortest = 1200 * time.Millisecond
	// longest is what they may be apart. A usage over a longer time would hide what goes on now.
	longest = 90 * time.Second
	// atOnce is how many nodes are asked side by side.
	atOnce = 64
	// patience is how long measuring a node may take. Upstream's kubelet measures every ten to fifteen seconds.
	patience = 20 * time.Second
)

// Config is what a Meter works with.
type Config struct {
	// Read asks a node's kubelet.
	Read func(ctx context.Context, node string) (*Reading, error)
	Now  func() time.Time
	// Sleep waits, or gives the context's error.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Meter measures what nodes use. Make one with New. Safe for concurrent use.
type Meter struct {
	Config
	mu    sync.Mutex
	nodes map[string]*node
	swept time.Time // when nodes that nobody asks about any more were last forgotten
}

// node is what is known of one. Whoever has put something into busy owns what follows it; the Meter's lock guards asked.
type node struct {
	asked   time.Time
	busy    chan struct{}
	reading *Reading
	readAt  time.Time
	usage   *Usage
	usedAt  time.Time
}

// New makes a Meter.
func New(c Config) *Meter { return &Meter{Config: c, nodes: map[string]*node{}} }

// Node is what a node and its pods use, measured now or a moment ago.
func (m *Meter) Node(ctx context.Context, name string) (*Usage, error) {
	n := m.node(name)
	select {
	case n.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-n.busy }()
	if n.usage != nil && m.Now().Sub(n.usedAt) < fresh {
		return n.usage, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if n.reading == nil || m.Now().Sub(n.readAt) > longest {
		if err := m.read(ctx, name, n); err != nil {
			return nil, err
		}
	}
	old := n.reading
	for n.reading == old || !n.reading.node.at.After(old.node.at) {
		if left := shortest - m.Now().Sub(n.readAt); left > 0 {
			if err := m.Sleep(ctx, left); err != nil {
				return nil, err
			}
		}
		if err := m.read(ctx, name, n); err != nil {
			return nil, err
		}
	}
	n.usage, n.usedAt = between(old, n.reading), n.readAt
	return n.usage, nil
}

func (m *Meter) node(name string) *node {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.Now()
	if now.Sub(m.swept) > longest {
		maps.DeleteFunc(m.nodes, func(_ string, n *node) bool { return now.Sub(n.asked) > longest })
		m.swept = now
	}
	n := m.nodes[name]
	if n == nil {
		n = &node{busy: make(chan struct{}, 1)}
		m.nodes[name] = n
	}
	n.asked = now
	return n
}

func (m *Meter) read(ctx context.Context, name string, n *node) error {
	r, err := m.Read(ctx, name)
	if err != nil {
		return err
	}
	if r.node.at.IsZero() {
		return errNotMeasured
	}
	n.reading, n.readAt = r, m.Now()
	return nil
}

var errNotMeasured = errors.New("the kubelet has measured nothing")

// Nodes asks about several nodes side by side. Those that do not answer are left out and told to failed, one at a time.
func (m *Meter) Nodes(ctx context.Context, names []string, failed func(name string, err error)) map[string]*Usage {
	out := make(map[string]*Usage, len(names))
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, name := range names {
		group.Go(func() error {
			u, err := m.Node(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed(name, err)
				return nil
			}
			out[name] = u
			return nil
		})
	}
	_ = group.Wait() // nobody fails
	return out
}
