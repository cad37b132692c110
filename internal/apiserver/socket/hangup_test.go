package socket

import (
	"errors"
	"net"
	"testing"
)

func runningWatcher(t *testing.T) *HangupWatcher {
	t.Helper()
	w, err := NewHangupWatcher()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.Run() }()
	t.Cleanup(func() {
		if err := errors.Join(w.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return w
}

func TestDataAndTheEndOfAConnectionAreReported(t *testing.T) {
	w := runningWatcher(t)
	const connections = 100 // more than one call of epoll_wait returns
	var conns [connections]*Conn
	var others [connections]net.Conn
	var activity [connections]Subscription
	reported := make(chan int, 2*connections)
	for i := range connections {
		conns[i], others[i] = pair(t)
		activity[i] = w.Subscribe(func() { reported <- i })
		if err := activity[i].Arm(conns[i], true); err != nil {
			t.Fatal(err)
		}
	}
	for i := range connections {
		write(t, conns[(i+1)%connections], []byte("its own writes are not reported"))
		if _, err := others[i].Write([]byte("xy")); err != nil {
			t.Fatal(err)
		}
		if got := <-reported; got != i {
			t.Fatalf("connection %d was reported instead of %d", got, i)
		}
	}
	one := make([]byte, 1)
	for i := range connections {
		for _, want := range "xy" { // data that came before Arm is reported too
			if _, err := conns[i].Read(one); err != nil || rune(one[0]) != want {
				t.Fatalf("the watcher has read from the stream: %q %v", one, err)
			}
			if want == 'x' {
				if err := activity[i].Arm(conns[i], false); err != nil {
					t.Fatal(err)
				}
				<-reported
			}
		}
		if err := activity[i].Arm(conns[i], false); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			activity[i].Close()
		}
		_ = others[i].Close()
		if i%2 == 1 {
			if got := <-reported; got != i {
				t.Fatalf("connection %d was reported instead of %d", got, i)
			}
			if _, err := conns[i].Read(one); err == nil {
				t.Fatal("the connection has no end")
			}
		}
	}
}

func TestAHangupWatcherCanBeClosedWhileItReports(t *testing.T) {
	for range 200 {
		w, err := NewHangupWatcher()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- w.Run() }()
		c, other := pair(t)
		if err := w.Subscribe(func() {}).Arm(c, true); err != nil {
			t.Fatal(err)
		}
		_ = other.Close()
		if err := errors.Join(w.Close(), <-done); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAClosedHangupWatcherTakesNoConnections(t *testing.T) {
	w, err := NewHangupWatcher()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(); err != nil {
		t.Error(err)
	}
	c, _ := pair(t)
	if w.Subscribe(func() {}).Arm(c, true) == nil {
		t.Error("it takes a connection")
	}
}
