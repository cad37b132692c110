package stats

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/volume"
)

const (
	// measuringTime is how long one measurement may take; after that its place is free again, also
	// if a hung file system still holds its goroutine.
	measuringTime = 2 * time.Minute
	// measuringAtOnce is how many measurements run at the same time.
	measuringAtOnce = 4
	// measuringAge is the age at which a cheap measurement is repeated. An expensive one is
	// repeated after twenty times its duration, but at the latest after measuringAgeLimit.
	measuringAge, measuringAgeLimit = 10 * time.Second, 5 * time.Minute
	// forgetAfter is when a measurement that nobody needs any more is dropped.
	forgetAfter = 10 * time.Minute
)

// background measures volumes and log folders in the background, each in a goroutine of its own. A
// caller gets the latest result and never waits: a folder with millions of files, or a hung mount,
// only delays its own result.
type background struct {
	now    func() time.Time
	ctx    context.Context
	cancel context.CancelFunc
	places chan struct{}

	mu  sync.Mutex
	all map[string]*measurement
}

// measurement is what is known of one folder.
type measurement struct {
	busy   bool // a goroutine measures it
	known  bool // there is a result
	at     time.Time
	took   time.Duration
	asked  time.Time
	result volume.Usage
}

func newBackground(now func() time.Time) *background {
	b := &background{now: now, places: make(chan struct{}, measuringAtOnce), all: map[string]*measurement{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// latest returns the latest result and its time. If that is old, it starts a new measurement.
func (b *background) latest(key string, run func(context.Context) (volume.Usage, error)) (volume.Usage, time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.all[key]
	if m == nil {
		m = &measurement{}
		b.all[key] = m
	}
	now := b.now()
	m.asked = now
	if age := min(max(20*m.took, measuringAge), measuringAgeLimit); !m.busy && (m.at.IsZero() || now.Sub(m.at) >= age) {
		m.busy = true
		go b.measure(m, run)
	}
	return m.result, m.at, m.known
}

// measure measures once.
func (b *background) measure(m *measurement, run func(context.Context) (volume.Usage, error)) {
	select {
	case b.places <- struct{}{}:
	case <-b.ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, measuringTime)
	free := context.AfterFunc(ctx, func() { <-b.places })
	began := b.now()
	result, err := run(ctx)
	if free() {
		<-b.places
	}
	cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	m.busy, m.at, m.took = false, b.now(), b.now().Sub(began)
	// A lower bound counts if it is news: a pod must not escape its limit by making folders that
	// cannot be counted in time.
	if err == nil || errors.Is(err, volume.ErrPartial) && (!m.known || result.UsedBytes >= m.result.UsedBytes) {
		m.result, m.known = result, true
	}
}

// forget drops results that have not been asked for recently. The goroutine of a hung measurement
// stays until the kernel answers it.
func (b *background) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, m := range b.all {
		if !m.busy && b.now().Sub(m.asked) > forgetAfter {
			delete(b.all, key)
		}
	}
}
