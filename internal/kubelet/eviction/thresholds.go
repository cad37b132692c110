// Package eviction protects the node from running out of memory, disk, inodes and process ids. When
// a signal falls below its threshold, the node reports a pressure condition, frees what it can, and
// evicts pods. Pods that use more than their requests go first. Pods that exceed their own limits
// of local storage are evicted as well.
package eviction

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is the measured quantity of a threshold.
type Signal string

const (
	MemoryAvailable   Signal = "memory.available"
	NodeFsAvailable   Signal = "nodefs.available"
	NodeFsInodesFree  Signal = "nodefs.inodesFree"
	ImageFsAvailable  Signal = "imagefs.available"
	ImageFsInodesFree Signal = "imagefs.inodesFree"
	PIDAvailable      Signal = "pid.available"
)

// Threshold is exceeded when less of a signal is left than its quantity or its share of the
// capacity.
type Threshold struct {
	Signal   Signal
	Quantity int64
	Percent  float64
	// Grace is how long it must be exceeded before pods are evicted; 0 is a hard threshold.
	Grace time.Duration
	// Reclaim is what must be available above the threshold before evictions end. It is a quantity
	// or a part of the capacity.
	Reclaim        int64
	ReclaimPercent float64
}

// Parse reads thresholds in the syntax of upstream's configuration: "100Mi" or "10%". grace holds
// durations by signal, such as "30s".
func Parse(thresholds, grace map[string]string) ([]Threshold, error) {
	var out []Threshold
	for name, text := range thresholds {
		t := Threshold{Signal: Signal(name)}
		if d, ok := grace[name]; ok {
			var err error
			if t.Grace, err = time.ParseDuration(d); err != nil {
				return nil, fmt.Errorf("grace period of eviction threshold %s: %w", name, err)
			}
		}
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
				continue // this is how upstream disables a threshold
			}
			t.Percent = v
		} else {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("eviction threshold %s: %q: %w", name, text, err)
			}
			if t.Quantity = q.Value(); t.Quantity == 0 {
				continue
			}
		}
		out = append(out, t)
	}
	return out, nil
}

// Capacity is the reserve that the hard thresholds keep of a capacity.
func Capacity(thresholds []Threshold, signal Signal, capacity int64) (reserve int64) {
	for _, t := range thresholds {
		if t.Signal == signal && t.Grace == 0 {
			reserve = max(reserve, t.limit(observation{capacity: capacity}))
		}
	}
	return reserve
}

// SetReclaim sets the minimum reclaims by signal, in the same syntax.
func SetReclaim(thresholds []Threshold, reclaim map[string]string) error {
	amounts, err := Parse(reclaim, nil)
	if err != nil {
		return fmt.Errorf("minimum reclaim: %w", err)
	}
	for _, a := range amounts {
		for i := range thresholds {
			if thresholds[i].Signal == a.Signal {
				thresholds[i].Reclaim, thresholds[i].ReclaimPercent = a.Quantity, a.Percent
			}
		}
	}
	return nil
}

// target is what must be available before evictions end.
func (t Threshold) target(o observation) int64 {
	if t.ReclaimPercent > 0 {
		return t.limit(o) + int64(float64(o.capacity)*t.ReclaimPercent/100)
	}
	return t.limit(o) + t.Reclaim
}

// observation is the available amount of a signal and its capacity.
type observation struct{ available, capacity int64 }

// limit returns the threshold as an amount.
func (t Threshold) limit(o observation) int64 {
	if t.Percent > 0 {
		return int64(float64(o.capacity) * t.Percent / 100)
	}
	return t.Quantity
}
