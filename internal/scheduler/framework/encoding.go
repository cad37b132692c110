package framework

import (
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
)

// encoding is what plugins outside of this process read of one version of a node object. Clones of
// a NodeInfo share it.
type encoding struct {
	version uint64
	once    sync.Once // guards the fields below
	proto   []byte
	err     error
}

// versions is the number of node objects so far.
var versions atomic.Uint64

func newEncoding() *encoding { return &encoding{version: versions.Add(1)} }

func (e *encoding) of(node *corev1.Node) ([]byte, error) {
	e.once.Do(func() { e.proto, e.err = encode(node) })
	return e.proto, e.err
}

func encode(node *corev1.Node) ([]byte, error) {
	if node.ManagedFields != nil {
		shown := *node
		shown.ManagedFields = nil
		node = &shown
	}
	proto, err := node.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode node %s: %w", node.Name, err)
	}
	return proto, nil
}

// Version identifies the node object in this process: NodeInfos with the same version have the same
// object. It is 0 if there is none. Pods on the node do not count.
func (n *NodeInfo) Version() uint64 {
	if n.encoding == nil {
		return 0
	}
	return n.encoding.version
}

// Proto returns the node object in protobuf, without managedFields. A version is encoded once. The
// caller must not change the bytes. Safe for concurrent use.
func (n *NodeInfo) Proto() ([]byte, error) {
	if n.encoding == nil {
		return encode(n.Node)
	}
	return n.encoding.of(n.Node)
}
