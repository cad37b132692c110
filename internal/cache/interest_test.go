package cache

import (
	"fmt"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// TestAnEventWakesOnlyInterestedCursors counts the wake-ups of a thousand cursors of each sort.
func TestAnEventWakesOnlyInterestedCursors(t *testing.T) {
	s := openStore(t)
	k := openKind(t, openCache(t, s), "/registry/pods")
	const each = 1000
	interests := map[string]func(i int) Interest{
		"of a node's pods": func(i int) Interest {
			return Interest{Fields: fields.OneTermEqualSelector("spec.nodeName", fmt.Sprint("node-", i))}
		},
		"of a namespace":       func(i int) Interest { return Interest{Namespace: fmt.Sprint("ns-", i)} },
		"of one object":        func(i int) Interest { return Interest{Namespace: "ns-7", Name: fmt.Sprint("pod-", i)} },
		"of a name in any":     func(i int) Interest { return Interest{Name: fmt.Sprint("pod-", i)} },
		"of labels elsewhere":  func(i int) Interest { return Interest{Namespace: "other", Labels: labels.Everything()} },
		"of another's object":  func(i int) Interest { return Interest{Namespace: "other", Name: fmt.Sprint("pod-", i)} },
		"of nodes and objects": func(i int) Interest { return Interest{Namespace: "ns-7", Name: fmt.Sprint("none-", i)} },
	}
	woken := map[string]*atomic.Int64{}
	for sort, interest := range interests {
		count := &atomic.Int64{}
		woken[sort] = count
		for i := range each {
			c, err := k.Watch(k.Revision(), interest(i))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Notify(func() { count.Add(1) })
		}
	}
	for _, step := range []struct {
		what string
		do   func() int64
		want map[string]int64
	}{
		{"a pod appears", func() int64 { return write(t, s, "/registry/pods", pod("ns-7", "pod-5", "node-3", nil)) },
			map[string]int64{"of a node's pods": 1, "of a namespace": 1, "of one object": 1, "of a name in any": 1}},
		{"a cursor that has not polled is not woken again", func() int64 {
			return write(t, s, "/registry/pods", pod("ns-7", "pod-5", "node-3", map[string]string{"a": "b"}))
		},
			map[string]int64{}},
		{"it goes to another node: one of its two nodes has not looked yet", func() int64 { return write(t, s, "/registry/pods", pod("ns-7", "pod-5", "node-4", nil)) },
			map[string]int64{"of a node's pods": 1}},
	} {
		before := map[string]int64{}
		for sort, count := range woken {
			before[sort] = count.Load()
		}
		// The clock reaches a revision after its watches woke. The kind's state shows it earlier.
		if err := k.clock.waitFor(patient(t), step.do()); err != nil {
			t.Fatal(err)
		}
		for sort, count := range woken {
			if got := count.Load() - before[sort]; got != step.want[sort] {
				t.Errorf("%s: %d watches %s wake, want %d", step.what, got, sort, step.want[sort])
			}
		}
	}
}
