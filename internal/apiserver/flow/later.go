package flow

import (
	"sync"
	"time"
)

// mostLater is the longest that who is refused is told to stay away, in seconds.
const mostLater = 32

// later is how many seconds those whom a priority level refuses are to stay away: twice as many when three a second of that time were refused in it, one less when not one
// a second was. It is looked at in a second's first refusal, and doubled no sooner than what it was has passed, so that who was told the last time may have heard it. This is what
// kube-apiserver answers.
type later struct {
	mu      sync.Mutex
	seconds int
	refused [mostLater + 1]int // in each of the seconds up to newest
	newest  int64              // Unix time
	doubled int64
}

// refuse counts a refusal and gives what to tell.
func (l *later) refuse(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if second := now.Unix(); second != l.newest {
		l.turn(second)
	}
	l.refused[l.slot(l.newest)]++
	return l.seconds
}

func (l *later) slot(second int64) int { return int(second % int64(len(l.refused))) }

func (l *later) turn(second int64) {
	for s := max(l.newest+1, second-mostLater); s <= second; s++ {
		l.refused[l.slot(s)] = 0
	}
	l.newest, l.seconds = second, max(l.seconds, 1)
	refused, within := 0, int64(l.seconds)
	for s := second - within; s < second; s++ {
		refused += l.refused[l.slot(s)]
	}
	switch {
	case refused >= 3*l.seconds && second-l.doubled >= within:
		l.seconds, l.doubled = min(2*l.seconds, mostLater), second
	case refused < l.seconds && l.seconds > 1:
		l.seconds--
	}
}
