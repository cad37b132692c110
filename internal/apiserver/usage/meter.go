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
	// maxAge is how long a usage is returned without a new measurement.
	maxAge = 5 * time.Second
	// minWindow is the least time between two readings: our kubelet measures at most once a second.
	minWindow = 1200 * time.Millisecond
	// maxWindow is the most time between two readings. A usage over a longer time would hide the
	// current load.
	maxWindow = 90 * time.Second
	// maxConcurrent is how many nodes are read concurrently.
	maxConcurrent = 64
	// measureTimeout limits the measurement of a node. Upstream's kubelet measures every ten to
	// fifteen seconds.
	measureTimeout = 20 * time.Second
)

// Config configures a Meter.
type Config struct {
	// Read reads from a node's kubelet.
	Read func(ctx context.Context, node string) (*Reading, error)
	Now  func() time.Time
	// Sleep waits, or returns the context's error.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Meter measures the usage of nodes. Create one with New. Safe for concurrent use.
type Meter struct {
	Config
	mu    sync.Mutex
	nodes map[string]*node
	swept time.Time // when nodes that are no longer requested were last forgotten
}

// node is the state of one node. The goroutine that has put a value into busy owns the following
// fields; the Meter's lock guards asked.
type node struct {
	asked   time.Time
	busy    chan struct{}
	reading *Reading
	readAt  time.Time
	usage   *Usage
	usedAt  time.Time
}

// New creates a Meter.
func New(c Config) *Meter { return &Meter{Config: c, nodes: map[string]*node{}} }

// Node returns the usage of a node and its pods, measured now or a moment ago.
func (m *Meter) Node(ctx context.Context, name string) (*Usage, error) {
	n := m.node(name)
	select {
	case n.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-n.busy }()
	if n.usage != nil && m.Now().Sub(n.usedAt) < maxAge {
		return n.usage, nil
	}
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	if n.reading == nil || m.Now().Sub(n.readAt) > maxWindow {
		if err := m.read(ctx, name, n); err != nil {
			return nil, err
		}
	}
	old := n.reading
	for n.reading == old || !n.reading.node.at.After(old.node.at) {
		if left := minWindow - m.Now().Sub(n.readAt); left > 0 {
			if err := m.Sleep(ctx, left); err != nil {
				return nil, err
			}
		}
		if err := m.read(ctx, name, n); err != nil {
			return nil, err
		}
	}
	n.usage, n.usedAt = usageBetween(old, n.reading), n.readAt
	return n.usage, nil
}

func (m *Meter) node(name string) *node {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.Now()
	if now.Sub(m.swept) > maxWindow {
		maps.DeleteFunc(m.nodes, func(_ string, n *node) bool { return now.Sub(n.asked) > maxWindow })
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

var errNotMeasured = errors.New("the kubelet has no measurements")

// Nodes measures several nodes concurrently. Nodes that fail are left out; failed is called for
// them, one at a time.
func (m *Meter) Nodes(ctx context.Context, names []string, failed func(name string, err error)) map[string]*Usage {
	out := make(map[string]*Usage, len(names))
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxConcurrent)
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
	_ = group.Wait() // no function returns an error
	return out
}
