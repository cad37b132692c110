package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// growth returns workloads that schedule plain pods on so many nodes. The scale changes the number
// of pods, but not of nodes.
func growth(numbers string) ([]workload, error) {
	var list []workload
	for _, text := range strings.Split(numbers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("nodes: %q is not a positive number", text)
		}
		// A hundred nodes have room for 4,000 pods.
		list = append(list, workload{fmt.Sprintf("nodes-%d", n), fmt.Sprintf("plain pods on %d nodes", n), ahead, []step{
			createNodes{count: n, exact: true},
			settle{},
			createPods{group: "measured", count: 3000, pod: plain, measured: true},
		}})
	}
	return list, nil
}

// settle waits until the servers are idle after the nodes were created, and prints their memory.
type settle struct{}

func (settle) run(ctx context.Context, s *stage) error {
	for range 60 {
		before := processor(tree(s.control))
		if err := pause(ctx, 2*time.Second); err != nil {
			return err
		}
		if processor(tree(s.control))-before < 300*time.Millisecond {
			break
		}
	}
	anon, rss := memory(tree(s.control))
	progress("%s: %s: the nodes alone: RssAnon %.0f MB, RSS %.0f MB", s.side, s.workload, anon, rss)
	return nil
}
