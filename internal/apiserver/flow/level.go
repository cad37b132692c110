package flow

import (
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Outcome is the result of enter.
type Outcome int

// A request is served at once, waits, or is refused.
const (
	Served Outcome = iota
	Waiting
	Refused
)

// Reasons for a refusal, as in metrics.
const (
	reasonConcurrency = "concurrency-limit"
	reasonQueueFull   = "queue-full"
	reasonTimeout     = "time-out"
	reasonCancelled   = "cancelled"
)

// levelShape is a level's configuration.
type levelShape struct {
	exempt                        bool
	queues, handSize, queueLength int // queues is 0 if requests do not wait
	nominal, lower, upper         int
}

// level is one priority level. It is kept when its configuration changes.
type level struct {
	name string
	uid  types.UID

	retryAfter retryAfter

	mu             sync.Mutex // guards the following fields
	shape          levelShape
	limit          int // current seats: nominal, less lent ones, plus borrowed ones
	executing      int // requests
	inUse          int // seats
	waiting        int // requests
	waitSeats      int
	queues         []queue
	virtual        float64 // virtual time at which the last served request was due
	typicalSeconds float64 // smoothed duration of requests in seconds
	peakDemand     int     // highest demand for seats since the last adjustment
	smoothed       float64 // demand over a longer time
	counts         counts
	utilization    utilization
}

type counts struct{ dispatched, refused, timedOut, cancelled uint64 }

// queue is a FIFO list of waiting requests.
type queue struct {
	waiters   []*waiter
	due       float64 // virtual time of the first
	seats     int
	executing int
}

// waiter is a waiting request.
type waiter struct {
	width  int
	queue  int
	since  time.Time
	served chan struct{} // closed when it gets its seats
	done   bool          // it has its seats, or has given up
	about  Request
	schema string
	flow   string // its flow within the schema
	// queueLength is the length of the queue when it arrived, including itself.
	queueLength int
	// expected is its expected duration in seconds when it got its seats.
	expected float64
}

// noQueue marks a request that found a free seat.
const noQueue = -1

// seats are what a request occupies.
type seats struct {
	width, queue int
	expected     float64
}

// initialSeconds is the expected duration in seconds before any request has ended.
const initialSeconds = 0.003

// enter gives the request seats, a place in a queue, or a reason for its refusal. hash identifies
// the flow.
func (l *level) enter(width int, hash uint64, now time.Time, about func() (r Request, schema, flow string)) (Outcome, seats, *waiter, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.elapseTo(now)
	l.peakDemand = max(l.peakDemand, l.inUse+l.waitSeats+width)
	if l.shape.exempt || l.waiting == 0 && l.fits(width) {
		l.take(width)
		return Served, seats{width: width, queue: noQueue}, nil, ""
	}
	if l.shape.queues == 0 {
		l.counts.refused++
		return Refused, seats{}, nil, reasonConcurrency
	}
	at := l.choose(hash)
	q := &l.queues[at]
	if len(q.waiters) >= l.shape.queueLength {
		l.counts.refused++
		return Refused, seats{}, nil, reasonQueueFull
	}
	if len(q.waiters) == 0 {
		q.due = max(q.due, l.virtual) // unused time in the past is no credit
	}
	w := &waiter{width: width, queue: at, since: now, served: make(chan struct{})}
	w.about, w.schema, w.flow = about()
	q.waiters = append(q.waiters, w)
	w.queueLength = len(q.waiters)
	q.seats += width
	l.waiting++
	l.waitSeats += width
	l.dispatch()
	return Waiting, seats{}, w, ""
}

// fits reports whether the request can run. One that is wider than the whole level runs alone.
func (l *level) fits(width int) bool { return l.inUse+width <= l.limit || l.inUse == 0 && l.limit > 0 }

func (l *level) take(width int) {
	l.inUse += width
	l.executing++
	l.counts.dispatched++
}

// choose deals a hand of queues from the hash and returns the one with the fewest seats ahead.
func (l *level) choose(hash uint64) int {
	best, least := -1, math.MaxInt
	hand := deal(hash, len(l.queues), l.shape.handSize)
	for _, i := range hand[:l.shape.handSize] {
		if load := l.queues[i].seats + l.queues[i].executing; load < least {
			best, least = i, load
		}
	}
	return best
}

// maxHand is the largest hand that the API allows: ceil(log2(queues)) × hand must fit into 60 bits
// of the hash, and there must be at least as many queues.
const maxHand = 15

// deal returns size different numbers below n; all hands are equally likely.
func deal(hash uint64, n, size int) (hand [maxHand]int) {
	for i := range size {
		card := int(hash % uint64(n-i))
		hash /= uint64(n - i)
		// The numbers dealt so far, in ascending order, push the card past them.
		at := 0
		for ; at < i && hand[at] <= card; at++ {
			card++
		}
		copy(hand[at+1:i+1], hand[at:i])
		hand[at] = card
	}
	return hand
}

// dispatch serves the requests that are due first, while there is room.
func (l *level) dispatch() {
	for l.waiting > 0 {
		best := -1
		for i := range l.queues {
			if len(l.queues[i].waiters) > 0 && (best < 0 || l.queues[i].due < l.queues[best].due) {
				best = i
			}
		}
		q := &l.queues[best]
		w := q.waiters[0]
		if !l.fits(w.width) {
			return
		}
		l.leave(q, 0)
		l.take(w.width)
		q.executing += w.width
		l.virtual = q.due
		w.expected = l.expected()
		q.due += w.expected * float64(w.width)
		w.done = true
		close(w.served)
	}
}

func (l *level) expected() float64 {
	if l.typicalSeconds == 0 {
		return initialSeconds
	}
	return l.typicalSeconds
}

// leave removes a waiter from its queue.
func (l *level) leave(q *queue, i int) {
	w := q.waiters[i]
	copy(q.waiters[i:], q.waiters[i+1:])
	q.waiters[len(q.waiters)-1] = nil
	q.waiters = q.waiters[:len(q.waiters)-1]
	q.seats -= w.width
	l.waiting--
	l.waitSeats -= w.width
}

// withdraw removes a request that no longer waits. It returns false if the request has just got its
// seats.
func (l *level) withdraw(w *waiter, reason string) (withdrawn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.done {
		return false
	}
	l.elapse()
	q := &l.queues[w.queue]
	for i := range q.waiters {
		if q.waiters[i] == w {
			l.leave(q, i)
			break
		}
	}
	if reason == reasonTimeout {
		l.counts.timedOut++
	} else {
		l.counts.cancelled++
	}
	w.done = true
	return true
}

// seats returns a waiter's seats; valid once served is closed.
func (w *waiter) seats() seats { return seats{width: w.width, queue: w.queue, expected: w.expected} }

// exit releases the seats of a request that took the given time.
func (l *level) exit(s seats, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.elapse()
	l.inUse -= s.width
	l.executing--
	if l.typicalSeconds == 0 {
		l.typicalSeconds = took.Seconds()
	} else {
		l.typicalSeconds += (took.Seconds() - l.typicalSeconds) / 16
	}
	if s.queue != noQueue && s.queue < len(l.queues) {
		q := &l.queues[s.queue]
		q.executing = max(0, q.executing-s.width)
		q.due += (took.Seconds() - s.expected) * float64(s.width)
	}
	if l.waiting > 0 {
		l.dispatch()
	}
}

// configure changes the level's shape. Requests in removed queues move to the remaining ones.
func (l *level) configure(uid types.UID, s levelShape) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.elapse()
	l.uid, l.shape = uid, s
	if len(l.queues) != s.queues {
		old := l.queues
		l.queues = make([]queue, s.queues)
		for i := range old {
			for _, w := range old[i].waiters {
				if s.queues == 0 {
					// This level has no queues any more: serve its waiting requests.
					l.waiting--
					l.waitSeats -= w.width
					w.queue, w.done = noQueue, true
					l.take(w.width)
					close(w.served)
					continue
				}
				w.queue = i % s.queues
				q := &l.queues[w.queue]
				q.waiters = append(q.waiters, w)
				q.seats += w.width
				q.due = max(q.due, old[i].due)
			}
		}
	}
	if l.limit == 0 {
		l.limit = s.nominal
	}
	l.limit = min(max(l.limit, s.lower), s.upper)
	l.dispatch()
}

// setLimit changes the current number of seats.
func (l *level) setLimit(limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.elapse()
	l.limit = limit
	l.dispatch()
}

// demand returns the highest demand since the last call, and the demand smoothed over a longer
// time.
func (l *level) demand() (highest int, smoothed float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	highest = l.peakDemand
	l.period(highest)
	l.peakDemand = l.inUse + l.waitSeats
	// A rise counts at once, a fall slowly: half of it is forgotten after five minutes.
	const keep = 0.977
	l.smoothed = max(float64(highest), keep*l.smoothed+(1-keep)*float64(highest))
	return highest, l.smoothed
}
