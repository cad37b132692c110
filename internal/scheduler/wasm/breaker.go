package wasm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// mostFailures is the number of failures in a row after which a guest is suspended.
	mostFailures = 5
	// suspension is the time for which a suspended guest is not called.
	suspension = 30 * time.Second
)

// Failure is a call of a guest without a valid verdict.
type Failure struct {
	// Plugin is the guest's name, and Point the export that was called.
	Plugin, Point string
	Err           error
	// Namespace and Pod name the pod of the cycle.
	Namespace, Pod string
	UID            types.UID
	// Suspended is set if the guest is not called for a while now.
	Suspended bool
	// InRow is the number of failures since the last verdict.
	InRow int
}

func (f Failure) Error() string {
	return fmt.Sprintf("plugin %s failed in %s: %v", f.Plugin, f.Point, f.Err)
}

// breaker suspends a guest that fails again and again, so that it does not slow the scheduler. Safe
// for concurrent use.
type breaker struct {
	now     func() time.Time
	failing atomic.Int32  // 1 after a failure, until a verdict
	epoch   atomic.Uint64 // number of failures

	mu    sync.Mutex // guards the fields below
	inRow int
	until time.Time
	last  error
}

// suspended returns the last failure of a suspended guest. After the suspension one failure
// suspends it again.
func (b *breaker) suspended() error {
	if b.failing.Load() == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inRow < mostFailures || !b.now().Before(b.until) {
		return nil
	}
	return fmt.Errorf("it is suspended for %v after %d failures in a row, the last one: %w", suspension, b.inRow, b.last)
}

func (b *breaker) failed(err error) (inRow int, suspended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failing.Store(1)
	b.epoch.Add(1)
	b.inRow++
	b.last = err
	if suspended = b.inRow >= mostFailures; suspended {
		b.until = b.now().Add(suspension)
	}
	return b.inRow, suspended
}

// succeeded notes a verdict, and reports whether a suspension has ended with it.
func (b *breaker) succeeded() (recovered bool) {
	if b.failing.Load() == 0 {
		return false // as nearly always
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	recovered = b.inRow >= mostFailures
	b.inRow = 0
	b.failing.Store(0)
	return recovered
}
