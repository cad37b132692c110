package wasm

import (
	"encoding/json"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// encodings keeps what guests read of all nodes, so that a set of nodes is encoded once for all
// pods and guests. Safe for concurrent use.
type encodings struct {
	mu     sync.Mutex
	latest *encodedNodes
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
	infos := make([]*framework.NodeInfo, 0, len(all.nodes))
	for i, n := range snapshot.Nodes.All() {
		infos = append(infos, n)
		all.nodes[i] = n.Node
		for name := range n.Images {
			all.images[name]++
		}
	}
	var err error
	if all.list, err = encodeList(infos); err != nil {
		return nil, err
	}
	e.latest = all
	return all, nil
}

// encodeList joins the encodings of nodes to a NodeList: field 1 is the metadata, and each field 2
// is an item.
func encodeList(nodes []*framework.NodeInfo) ([]byte, error) {
	out, err := (&corev1.NodeList{}).Marshal()
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		proto, err := node.Proto()
		if err != nil {
			return nil, err
		}
		out = appendVector(append(out, 2<<3|2), proto)
	}
	return slices.Clip(out), nil
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
