//go:build inprocess

package runc

import (
	"errors"
	"testing"
	"time"
)

func TestReapingWaitsForAStart(t *testing.T) {
	g, started, finish, done := newGate(), make(chan struct{}), make(chan struct{}), make(chan string, 3)
	go func() {
		_ = g.start(func() error { close(started); <-finish; done <- "start"; return nil })
	}()
	<-started
	reaped := make(chan struct{})
	go func() {
		_ = g.reap(time.Minute, func() error { done <- "reap"; return nil })
		close(reaped)
	}()
	for { // until the reaper waits
		g.mu.Lock()
		waiting := g.reaping
		g.mu.Unlock()
		if waiting {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(finish)
	<-reaped
	if first, second := <-done, <-done; first != "start" || second != "reap" {
		t.Errorf("%s came before %s", first, second)
	}
}

func TestAHangingStartDoesNotBlockTheReaper(t *testing.T) {
	g, started, finish := newGate(), make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.start(func() error { close(started); <-finish; return nil })
	}()
	<-started
	want := errors.New("reaped")
	if err := g.reap(time.Millisecond, func() error { return want }); err != want {
		t.Errorf("reap returned %v, want the error of its function", err)
	}
	close(finish)
	<-ended
	if err := g.start(func() error { return nil }); err != nil {
		t.Errorf("a start after that: %v", err)
	}
}
