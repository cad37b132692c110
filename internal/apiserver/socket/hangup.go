package socket

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// HangupWatcher reports when the other end of a connection has sent something or has hung up. It
// serves any number of connections from the goroutine of Run, and reads nothing from them.
type HangupWatcher struct {
	file *os.File // an epoll instance, which the Go runtime polls
	fd   int

	mu     sync.Mutex // guards what follows
	last   uint64     // the newest subscription
	notify map[uint64]func()
	closed bool // fd may belong to another file
}

// NewHangupWatcher makes a HangupWatcher. It reports while Run runs.
func NewHangupWatcher() (*HangupWatcher, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	// Without O_NONBLOCK, package os would not hand the file to the runtime's poller.
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("epoll: %w", err), syscall.Close(fd))
	}
	return &HangupWatcher{
		file: os.NewFile(uintptr(fd), "epoll"), fd: fd, notify: map[uint64]func(){},
	}, nil
}

// Subscription is the interest in one connection. The zero value reports nothing and can be closed.
type Subscription struct {
	watcher *HangupWatcher
	id      uint64
}

// Subscribe prepares a subscription. Run calls notify once for each Arm; notify must not block.
func (w *HangupWatcher) Subscribe(notify func()) Subscription {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	w.notify[w.last] = notify
	return Subscription{w, w.last}
}

// Arm asks for one report of the next activity on the connection. All calls must be for the same
// connection; first marks the first of them. It fails with os.ErrClosed if the watcher is closed.
func (s Subscription) Arm(c *Conn, first bool) error {
	op := syscall.EPOLL_CTL_MOD
	if first {
		op = syscall.EPOLL_CTL_ADD
	}
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	if s.watcher.closed {
		return os.ErrClosed
	}
	event := syscall.EpollEvent{
		Events: syscall.EPOLLIN | syscall.EPOLLRDHUP | syscall.EPOLLONESHOT,
		Fd:     int32(uint32(s.id)), Pad: int32(uint32(s.id >> 32)),
	}
	var failed error
	err := c.raw.Control(func(fd uintptr) {
		failed = syscall.EpollCtl(s.watcher.fd, op, int(fd), &event)
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// Close ends the subscription. The kernel's part ends when the connection is closed.
func (s Subscription) Close() {
	if s.watcher == nil {
		return
	}
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	delete(s.watcher.notify, s.id)
}

// Run reports until Close is called.
func (w *HangupWatcher) Run() error {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	events := make([]syscall.EpollEvent, 64)
	err = raw.Read(func(fd uintptr) (done bool) {
		for {
			n, err := syscall.EpollWait(int(fd), events, 0)
			switch {
			case err == syscall.EINTR:
				continue
			case err != nil:
				failed = fmt.Errorf("epoll_wait: %w", err)
				return true
			case n == 0:
				return false // wait until the instance is readable again
			}
			for i := range events[:n] {
				w.report(uint64(uint32(events[i].Fd)) | uint64(uint32(events[i].Pad))<<32)
			}
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	return errors.Join(err, failed)
}

func (w *HangupWatcher) report(id uint64) {
	w.mu.Lock()
	notify := w.notify[id]
	w.mu.Unlock()
	if notify != nil {
		notify()
	}
}

// Close ends Run.
func (w *HangupWatcher) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock() // file.Close waits for Run, which may be about to call report
	return w.file.Close()
}
