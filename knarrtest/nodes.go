package knarrtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/hollow"
)

// nodeAddresses is the first of the nodes' addresses, which lead nowhere. It is in the range for
// benchmarks (RFC 2544).
var nodeAddresses = netip.MustParseAddr("198.18.0.1")

// nodeIPAM is the controller that assigns pod ranges to nodes.
const nodeIPAM = "node-ipam-controller"

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// fleet runs the hollow nodes. Each has its own identity. They end with the process or by StopNode.
type fleet struct {
	cluster *Cluster

	mu      sync.Mutex
	ctx     context.Context
	running map[string]context.CancelFunc
	ended   map[string]chan struct{}
	count   int
	group   sync.WaitGroup
	failed  chan error
}

func newFleet(c *Cluster) *fleet {
	return &fleet{cluster: c, running: map[string]context.CancelFunc{}, ended: map[string]chan struct{}{}, failed: make(chan error, 1)}
}

// start starts the nodes of the options. It is a component of the process.
func (f *fleet) start(ctx context.Context) (func() error, error) {
	f.mu.Lock()
	f.ctx = ctx
	f.mu.Unlock()
	var registered []<-chan struct{}
	for i := range f.cluster.options.nodes {
		there, err := f.add(f.cluster.options.nodes[i])
		if err != nil {
			return nil, err
		}
		registered = append(registered, there)
	}
	for _, there := range registered {
		if err := f.await(there); err != nil {
			return nil, err
		}
	}
	return func() error {
		var err error
		select {
		case <-ctx.Done():
		case err = <-f.failed:
		}
		f.group.Wait()
		return err
	}, nil
}

// await waits until a node is registered.
func (f *fleet) await(registered <-chan struct{}) error {
	select {
	case <-registered:
		return nil
	case err := <-f.failed:
		return err
	case <-f.ctx.Done():
		return f.ctx.Err()
	case <-time.After(startTimeout):
		return errors.New("a hollow node does not register")
	}
}

// add starts a node. The channel is closed when its Node object exists.
func (f *fleet) add(node corev1.Node) (<-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if node.Name == "" {
		return nil, errors.New("a hollow node has no name")
	}
	if _, ok := f.running[node.Name]; ok {
		return nil, fmt.Errorf("the hollow node %s exists already", node.Name)
	}
	c := f.cluster
	address := nodeAddresses
	for range f.count {
		address = address.Next()
	}
	registered := make(chan struct{})
	config := hollow.Config{
		RenewEvery: c.renewEvery, Registered: func() { close(registered) },
		Node: node, Client: c.server.Client(auth.Component("system:node:"+node.Name, auth.GroupNodes)), Address: address.String(),
		Fate: c.hollowFate(), Log: c.log.With("component", "hollow node"),
	}
	if c.clock != nil {
		config.Clock = &c.clock.moved
	}
	if c.chosen && !slices.Contains(c.controllers, nodeIPAM) {
		config.PodRange = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, byte(f.count), 0}), 24)
	}
	f.count++
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan struct{})
	f.running[node.Name], f.ended[node.Name] = cancel, done
	f.group.Go(func() {
		defer close(done)
		if err := hollow.Run(ctx, config); err != nil && ctx.Err() == nil {
			select {
			case f.failed <- err:
			default:
			}
		}
	})
	return registered, nil
}

// AddNode adds a hollow node to the running cluster, like [WithNode]. It returns when the Node
// object exists.
func (c *Cluster) AddNode(node corev1.Node) error {
	registered, err := c.nodes.add(*node.DeepCopy())
	if err != nil {
		return err
	}
	return c.nodes.await(registered)
}

// StopNode stops a hollow node as if its machine had lost power. Its Node object stays, its lease
// is not renewed, and its pods' statuses do not change. AddNode with the same name starts it again.
func (c *Cluster) StopNode(name string) error {
	f := c.nodes
	f.mu.Lock()
	cancel, ok := f.running[name]
	done := f.ended[name]
	delete(f.running, name)
	delete(f.ended, name)
	f.mu.Unlock()
	if !ok {
		return fmt.Errorf("there is no hollow node %s", name)
	}
	cancel()
	<-done
	return nil
}
