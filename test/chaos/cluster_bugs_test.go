package chaos

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// findInCluster makes histories of three servers with the bug.
func (b *seededBug) findInCluster(t *testing.T, program string, env []string, start uint64) (n int, found error) {
	t.Helper()
	c := startJudged(t, 3, func(_ int, o *memberOptions) { o.program, o.env = program, env })
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
