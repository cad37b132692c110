package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// findInCluster makes histories of three servers with the bug.
func (b *seededBug) findInCluster(t *testing.T, program string, env []string, start uint64) (n int, found error) {
	t.Helper()
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "3")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "2")
	c := startCluster(t, 3, func(_ int, o *memberOptions) { o.program, o.env = program, env })
	if err := c.define(); err != nil {
		t.Fatal(err)
	}
	nodes, stopNodes := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stopNodes()
	if err := c.hollowNodes(nodes, &running); err != nil {
		t.Fatal(err)
	}
	for n < b.most && !t.Failed() {
		records, w, err := c.round(t, fmt.Sprintf("round-%d", n), rand.New(rand.NewPCG(start, uint64(n))), &diary{began: time.Now()})
		n++
		for _, r := range records {
			if broken := r.check(); broken != nil {
				return n, fmt.Errorf("%s: %w", r.kind.name, broken)
			}
		}
		if err == nil {
			_, err = w.check()
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
