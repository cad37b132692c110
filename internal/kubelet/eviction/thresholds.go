// Package eviction keeps the node from running dry: when memory, disk, inodes or process ids fall below a threshold, the node says so in
// its conditions, gives back what it can, and ends pods, those that use more than they asked for first. Pods that exceed their own
// limits of local storage are ended as well.
package eviction

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is what a threshold is about.
type Signal string

const (
	MemoryAvailable   Signal = "memory.available"
	NodeFsAvailable   Signal = "nodefs.available"
	NodeFsInodesFree  Signal = "nodefs.inodesFree"
	ImageFsAvailable  Signal = "imagefs.available"
	ImageFsInodesFree Signal = "imagefs.inodesFree"
	PIDAvailable      Signal = "pid.available"
)

// DefaultHard are upstream's thresholds.
var DefaultHard = map[string]string{
	string(MemoryAvailable): "100Mi", string(NodeFsAvailable): "10%", string(NodeFsInodesFree): "5%", string(ImageFsAvailable): "15%", string(ImageFsInodesFree): "5%",
}

// Threshold is passed when what is left of a signal is less than its quantity, or its part of the capacity.
type Threshold struct {
	Signal   Signal
	Quantity int64
	Percent  float64
	// Grace is how long it has to be passed before pods are ended; 0 is a hard threshold.
	Grace time.Duration
}

// Parse reads thresholds as upstream's configuration writes them: "100Mi" or "10%".
func Parse(thresholds map[string]string, grace map[string]time.Duration) ([]Threshold, error) {
	var out []Threshold
	for name, text := range thresholds {
		t := Threshold{Signal: Signal(name), Grace: grace[name]}
		switch t.Signal {
		case MemoryAvailable, NodeFsAvailable, NodeFsInodesFree, ImageFsAvailable, ImageFsInodesFree, PIDAvailable:
		default:
			return nil, fmt.Errorf("eviction threshold %q: unknown signal", name)
		}
		if p, ok := strings.CutSuffix(text, "%"); ok {
			v, err := strconv.ParseFloat(p, 64)
			if err != nil || v < 0 || v > 100 {
				return nil, fmt.Errorf("eviction threshold %s: %q is not a percentage", name, text)
			}
			if v == 0 {
				continue // upstream's way to switch one off
			}
			t.Percent = v
		} else {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("eviction threshold %s: %q: %w", name, text, err)
			}
			t.Quantity = q.Value()
		}
		out = append(out, t)
	}
	return out, nil
}

// observation is how much of a signal is left.
type observation struct{ available, capacity int64 }

// limit is the threshold's quantity.
func (t Threshold) limit(o observation) int64 {
	if t.Percent > 0 {
		return int64(float64(o.capacity) * t.Percent / 100)
	}
	return t.Quantity
}
