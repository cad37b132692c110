package main

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// The format of ttrpc's frames: a header of ten bytes (length and stream, both big-endian, a type
// and flags) and the content.
const (
	headerSize   = 10
	typeRequest  = 1
	typeResponse = 2
	// keptFrame is the size of the largest frame that is kept. Requests that a sleeping shim
	// answers after it has woken are far smaller.
	keptFrame = 64 << 10
)

// frames splits a stream of bytes into frames.
type frames struct {
	part    []byte // the beginning of a frame; of a large one only the header
	missing int    // bytes of a frame that are still to come, once the header is complete
}

// atBoundary reports whether no frame is incomplete.
func (f *frames) atBoundary() bool { return len(f.part) == 0 }

// add calls each with every frame that data completes.
func (f *frames) add(data []byte, each func(frame []byte)) {
	for len(data) > 0 {
		if need := headerSize - len(f.part); need > 0 && f.missing == 0 {
			n := min(need, len(data))
			f.part, data = append(f.part, data[:n]...), data[n:]
			if len(f.part) < headerSize {
				return
			}
			f.missing = int(binary.BigEndian.Uint32(f.part))
		} else {
			n := min(f.missing, len(data))
			if binary.BigEndian.Uint32(f.part) <= keptFrame {
				f.part = append(f.part, data[:n]...)
			}
			f.missing, data = f.missing-n, data[n:]
		}
		if f.missing == 0 {
			each(f.part)
			f.part = nil
		}
	}
}

func streamOf(frame []byte) uint32 { return binary.BigEndian.Uint32(frame[4:]) }

// conn is a connection of containerd that knows the requests without an answer.
type conn struct {
	*os.File
	raw     syscall.RawConn
	fd      int
	sleeper *sleeper

	// The sleeper's mutex guards the following.
	replay     []byte // requests of an earlier program of this process, to be read first
	in, out    frames
	unanswered map[uint32][]byte // the frames of requests by stream
	writing    int
}

// newConn takes a socket, and requests to which it owes answers. The caller holds the sleeper's
// mutex.
func (s *sleeper) newConn(fd int, requests [][]byte) (*conn, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	unix.CloseOnExec(fd)
	c := &conn{File: os.NewFile(uintptr(fd), "connection"), fd: fd, sleeper: s, unanswered: map[uint32][]byte{}}
	var err error
	if c.raw, err = c.SyscallConn(); err != nil {
		return nil, err
	}
	for _, request := range requests {
		c.unanswered[streamOf(request)] = request
		c.replay = append(c.replay, request...)
	}
	s.conns[c] = struct{}{}
	return c, nil
}

// Read implements net.Conn. Bytes leave the socket while the sleeper's mutex is held: every byte is
// either in the socket or accounted for.
func (c *conn) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	e := c.raw.Read(func(fd uintptr) bool {
		c.sleeper.mu.Lock()
		defer c.sleeper.mu.Unlock()
		if len(c.replay) > 0 {
			n = copy(p, c.replay)
			c.replay = c.replay[n:]
			return true
		}
		for {
			n, err = unix.Read(int(fd), p)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if errors.Is(err, unix.EAGAIN) {
			err = nil
			return false
		}
		if n > 0 {
			c.sleeper.last = time.Now()
			c.in.add(p[:n], func(frame []byte) {
				if frame[8] == typeRequest {
					c.unanswered[streamOf(frame)] = frame
				}
			})
		}
		return true
	})
	switch {
	case e != nil:
		return 0, e
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.sleeper.mu.Lock()
	c.writing++
	c.sleeper.mu.Unlock()
	n, err := c.File.Write(p)
	c.sleeper.mu.Lock()
	defer c.sleeper.mu.Unlock()
	c.writing--
	c.sleeper.last = time.Now()
	c.out.add(p[:n], func(frame []byte) {
		if frame[8] == typeResponse {
			delete(c.unanswered, streamOf(frame))
		}
	})
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.sleeper.mu.Lock()
	delete(c.sleeper.conns, c)
	c.sleeper.mu.Unlock()
	return c.File.Close() // waits for Read, which takes the mutex
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// waiting returns the requests without an answer, in the order of their streams, if all of them
// wait for the end of a process and nothing is on its way. The caller holds the sleeper's mutex.
func (c *conn) waiting() (requests [][]byte, ok bool) {
	if c.writing > 0 || len(c.replay) > 0 || !c.in.atBoundary() || !c.out.atBoundary() {
		return nil, false
	}
	for _, stream := range slices.Sorted(maps.Keys(c.unanswered)) {
		frame := c.unanswered[stream]
		var request ttrpc.Request
		if len(frame) == headerSize || proto.Unmarshal(frame[headerSize:], &request) != nil || request.Method != "Wait" || request.TimeoutNano != 0 {
			return nil, false
		}
		requests = append(requests, frame)
	}
	return requests, true
}

// listener accepts containerd's connections.
type listener struct {
	*os.File
	raw     syscall.RawConn
	sleeper *sleeper
	// inherited are connections of an earlier program of this process.
	inherited []*conn
}

func (s *sleeper) newListener(fd int) (*listener, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	unix.CloseOnExec(fd)
	l := &listener{File: os.NewFile(uintptr(fd), "listener"), sleeper: s}
	var err error
	l.raw, err = l.SyscallConn()
	return l, err
}

// Accept implements net.Listener. It refuses connections of other users.
func (l *listener) Accept() (net.Conn, error) {
	if len(l.inherited) > 0 {
		first := l.inherited[0]
		l.inherited = l.inherited[1:]
		return first, nil
	}
	var accepted *conn
	var err error
	e := l.raw.Read(func(fd uintptr) bool {
		l.sleeper.mu.Lock()
		defer l.sleeper.mu.Unlock()
		accepted, err = l.sleeper.accept(int(fd))
		return err != nil || accepted != nil
	})
	if e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return accepted, nil
}

// accept returns nil if there is no connection. The caller holds the mutex.
func (s *sleeper) accept(listener int) (*conn, error) {
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil, nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		case err != nil:
			return nil, err
		}
		s.last = time.Now()
		peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil || int(peer.Uid) != os.Geteuid() {
			unix.Close(fd)
			continue
		}
		return s.newConn(fd, nil)
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }
