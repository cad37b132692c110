// Package movedclock is a clock that runs with the machine's clock and can be moved ahead. A move
// fires the timers and tickers that it passes at once. So a component on this clock does within a
// moment what it would have done by then.
//
// In: Advance. Out: k8s.io/utils/clock.WithTicker.
package movedclock

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Clock is safe for concurrent use. The zero Clock shows the machine's time.
type Clock struct {
	mu     sync.Mutex
	ahead  time.Duration
	alarms map[*alarm]struct{}
}

var _ clock.WithTicker = (*Clock)(nil)

// Now returns the machine's time plus all moves.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time { return time.Now().Add(c.ahead) }

// Since returns the time since t on this clock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Advance moves the clock ahead. A negative d does nothing.
func (c *Clock) Advance(d time.Duration) {
	if d <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
	for a := range c.alarms {
		a.wind()
	}
}

// NewTimer fires once, after d on this clock.
func (c *Clock) NewTimer(d time.Duration) clock.Timer { return c.start(d, 0) }

// NewTicker fires every d on this clock. A move over several periods gives one tick.
func (c *Clock) NewTicker(d time.Duration) clock.Ticker { return ticker{c.start(d, d)} }

// After returns the channel of a new timer.
func (c *Clock) After(d time.Duration) <-chan time.Time { return c.NewTimer(d).C() }

// Tick returns the channel of a new ticker.
func (c *Clock) Tick(d time.Duration) <-chan time.Time { return c.NewTicker(d).C() }

// Sleep returns after d on this clock.
func (c *Clock) Sleep(d time.Duration) { <-c.After(d) }

func (c *Clock) start(d, period time.Duration) *alarm {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &alarm{clock: c, fired: make(chan time.Time, 1), period: period}
	a.set(d)
	return a
}

// alarm is a timer or a ticker. Its clock's mu guards its fields.
type alarm struct {
	clock  *Clock
	fired  chan time.Time
	at     time.Time
	period time.Duration // 0 for a timer
	real   *time.Timer
}

// set restarts the alarm.
func (a *alarm) set(d time.Duration) {
	if a.clock.alarms == nil {
		a.clock.alarms = map[*alarm]struct{}{}
	}
	a.clock.alarms[a] = struct{}{}
	a.at = a.clock.now().Add(d)
	a.wind()
}

// wind sets the machine's timer to the time at which this clock reaches the alarm.
func (a *alarm) wind() {
	rest := max(a.at.Sub(a.clock.now()), 0)
	if a.real == nil {
		a.real = time.AfterFunc(rest, a.fire)
	} else {
		a.real.Reset(rest)
	}
}

func (a *alarm) fire() {
	a.clock.mu.Lock()
	defer a.clock.mu.Unlock()
	if _, ok := a.clock.alarms[a]; !ok {
		return // stopped meanwhile
	}
	now := a.clock.now()
	if now.Before(a.at) {
		a.wind()
		return
	}
	select {
	case a.fired <- now:
	default: // the last time has not been received yet
	}
	if a.period > 0 {
		a.set(a.period)
	} else {
		delete(a.clock.alarms, a)
	}
}

// C returns the channel of the alarm's times.
func (a *alarm) C() <-chan time.Time { return a.fired }

// Stop reports whether the alarm was still pending.
func (a *alarm) Stop() bool {
	a.clock.mu.Lock()
	defer a.clock.mu.Unlock()
	_, was := a.clock.alarms[a]
	delete(a.clock.alarms, a)
	a.real.Stop()
	a.drain()
	return was
}

// Reset restarts the alarm and reports whether it was still pending.
func (a *alarm) Reset(d time.Duration) bool {
	a.clock.mu.Lock()
	defer a.clock.mu.Unlock()
	_, was := a.clock.alarms[a]
	a.drain()
	a.set(d)
	return was
}

// drain removes a time that was not received, as the machine's timers do since Go 1.23.
func (a *alarm) drain() {
	select {
	case <-a.fired:
	default:
	}
}

type ticker struct{ *alarm }

func (t ticker) Stop() { t.alarm.Stop() }
