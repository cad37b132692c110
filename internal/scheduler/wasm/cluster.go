package wasm

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// encodings keeps the protobuf of nodes, so that a version of a node is encoded once for all pods
// and guests. Safe for concurrent use.
type encodings struct {
	mu     sync.Mutex
	nodes  map[string]encodedNode
	latest *encodedNodes
}

// encodedNode is a node with its encoding. Another object of the same name is another version.
type encodedNode struct {
	node  *corev1.Node
	proto []byte
}

// mostGone is how many nodes that are gone may have encodings besides as many as the cluster has.
const mostGone = 64

// node returns the encoding of a node in a cluster of so many nodes.
func (e *encodings) node(node *corev1.Node, nodes int) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.nodes) > 2*nodes+mostGone {
		e.nodes = nil // guests that never ask for all nodes forget none
	}
	return e.encode(node)
}

func (e *encodings) encode(node *corev1.Node) ([]byte, error) {
	if have, ok := e.nodes[node.Name]; ok && have.node == node {
		return have.proto, nil
	}
	proto, err := node.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode node %s: %w", node.Name, err)
	}
	if e.nodes == nil {
		e.nodes = map[string]encodedNode{}
	}
	e.nodes[node.Name] = encodedNode{node, proto}
	return proto, nil
}

// encodedNodes is what guests read of all nodes of a snapshot.
type encodedNodes struct {
	nodes  []*corev1.Node
	list   []byte         // a NodeList
	images map[string]int // the number of nodes that have an image, by the image's name
}

// all returns the encodings of a snapshot's nodes. Snapshots with the same nodes share them.
func (e *encodings) all(snapshot *framework.Snapshot) (*encodedNodes, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.latest != nil && len(e.latest.nodes) == snapshot.Nodes.Len() {
		same := true
		for i, n := range snapshot.Nodes.All() {
			if same = n.Node == e.latest.nodes[i]; !same {
				break
			}
		}
		if same {
			return e.latest, nil
		}
	}
	all := &encodedNodes{nodes: make([]*corev1.Node, snapshot.Nodes.Len()), images: map[string]int{}}
	for i, n := range snapshot.Nodes.All() {
		all.nodes[i] = n.Node
		for name := range n.Images {
			all.images[name]++
		}
	}
	var err error
	if all.list, err = e.encodeList(all.nodes); err != nil {
		return nil, err
	}
	e.forget(all.nodes)
	e.latest = all
	return all, nil
}

// encodeList joins the encodings of nodes to a NodeList: field 1 is the metadata, and each field 2
// is an item.
func (e *encodings) encodeList(nodes []*corev1.Node) ([]byte, error) {
	out, err := (&corev1.NodeList{}).Marshal()
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		proto, err := e.encode(node)
		if err != nil {
			return nil, err
		}
		out = appendVector(append(out, 2<<3|2), proto)
	}
	return slices.Clip(out), nil
}

// forget drops the encodings of nodes that are gone.
func (e *encodings) forget(nodes []*corev1.Node) {
	if len(e.nodes) <= 2*len(nodes) {
		return
	}
	kept := make(map[string]encodedNode, len(nodes))
	for _, node := range nodes {
		kept[node.Name] = e.nodes[node.Name]
	}
	e.nodes = kept
}

// imageState is the state of an image on a node, with upstream's names in JSON.
type imageState struct {
	Size     int64
	NumNodes int
}

// imageStates returns the JSON of a node's images; null if the node is unknown.
func (all *encodedNodes) imageStates(node *framework.NodeInfo) ([]byte, error) {
	if node == nil {
		return []byte("null"), nil
	}
	states := make(map[string]imageState, len(node.Images))
	for name, size := range node.Images {
		states[name] = imageState{size, all.images[name]}
	}
	return json.Marshal(states)
}
