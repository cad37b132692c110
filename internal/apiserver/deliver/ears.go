package deliver

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// Ears hear when the other end of a connection has sent something, or has gone, for any number of connections, which keep no goroutine for that.
// They take nothing from the streams.
type Ears struct {
	file *os.File // an epoll instance, which the runtime's own watches
	fd   int

	mu     sync.Mutex // guards what follows
	last   uint64
	heard  map[uint64]func()
	closed bool // fd may be something else's
}

// NewEars makes Ears. They hear while Run runs.
func NewEars() (*Ears, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // else os would not wait for it in the runtime's way
		return nil, errors.Join(fmt.Errorf("epoll: %w", err), syscall.Close(fd))
	}
	return &Ears{file: os.NewFile(uintptr(fd), "epoll"), fd: fd, heard: map[uint64]func(){}}, nil
}

// Ear is what hears one connection. The zero value hears nothing, and can be closed.
type Ear struct {
	ears *Ears
	id   uint64
}

// Open prepares to hear; heard is called by Run, once for each time that Listen was, and must not block.
func (e *Ears) Open(heard func()) Ear {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	e.heard[e.last] = heard
	return Ear{e, e.last}
}

// Listen waits for the next time that there is something to be heard of the connection, which is always the same; first says that it was not called before.
func (e Ear) Listen(c *Conn, first bool) error {
	op := syscall.EPOLL_CTL_MOD
	if first {
		op = syscall.EPOLL_CTL_ADD
	}
	e.ears.mu.Lock()
	defer e.ears.mu.Unlock()
	if e.ears.closed {
		return os.ErrClosed
	}
	event := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLRDHUP | syscall.EPOLLONESHOT, Fd: int32(uint32(e.id)), Pad: int32(uint32(e.id >> 32))}
	var failed error
	err := c.raw.Control(func(fd uintptr) { failed = syscall.EpollCtl(e.ears.fd, op, int(fd), &event) })
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// Close ends it. Closing the connection ends what the kernel does for it.
func (e Ear) Close() {
	if e.ears == nil {
		return
	}
	e.ears.mu.Lock()
	defer e.ears.mu.Unlock()
	delete(e.ears.heard, e.id)
}

// Run hears until the Ears are closed.
func (e *Ears) Run() error {
	raw, err := e.file.SyscallConn()
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
				return false // until there is something again
			}
			for i := range events[:n] {
				e.tell(uint64(uint32(events[i].Fd)) | uint64(uint32(events[i].Pad))<<32)
			}
		}
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	return errors.Join(err, failed)
}

func (e *Ears) tell(id uint64) {
	e.mu.Lock()
	heard := e.heard[id]
	e.mu.Unlock()
	if heard != nil {
		heard()
	}
}

// Close ends Run.
func (e *Ears) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock() // Close waits for Run, which may be about to tell
	return e.file.Close()
}
