package flow

import (
	"sync"
	"time"
)

// maxRetryAfter is the longest Retry-After in seconds.
const maxRetryAfter = 32

// retryAfter computes the Retry-After of a priority level, as kube-apiserver does. It doubles if,
// during that time, three requests per second were refused, and falls by one if less than one per
// second was. The rate is checked at a second's first refusal. It is not doubled again before the
// last value has passed, so that refused clients may have reacted to it.
type retryAfter struct {
	mu      sync.Mutex
	seconds int
	refused [maxRetryAfter + 1]int // in each of the seconds up to newest
	newest  int64                  // Unix time
	doubled int64
}

// refuse counts a refusal and returns the Retry-After.
func (l *retryAfter) refuse(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if second := now.Unix(); second != l.newest {
		l.advance(second)
	}
	l.refused[l.slot(l.newest)]++
	return l.seconds
}

func (l *retryAfter) slot(second int64) int { return int(second % int64(len(l.refused))) }

func (l *retryAfter) advance(second int64) {
	for s := max(l.newest+1, second-maxRetryAfter); s <= second; s++ {
		l.refused[l.slot(s)] = 0
	}
	l.newest, l.seconds = second, max(l.seconds, 1)
	refused, within := 0, int64(l.seconds)
	for s := second - within; s < second; s++ {
		refused += l.refused[l.slot(s)]
	}
	switch {
	case refused >= 3*l.seconds && second-l.doubled >= within:
		l.seconds, l.doubled = min(2*l.seconds, maxRetryAfter), second
	case refused < l.seconds && l.seconds > 1:
		l.seconds--
	}
}
