package taskpool

import (
	"os"
	"syscall"
	"time"
)

// lane is held by one large list at a time. Its pipe lets the holder poll the network (see poll);
// only the bytes that wake the holder go through it.
type lane struct {
	reader, writer       *os.File // closed by the garbage collector, with the lane
	rawReader, rawWriter syscall.RawConn
	polled               time.Time
}

// newLane makes a lane. If the system has no pipe left, the lane works without polling: requests
// that arrive while every CPU is busy are then noticed later.
func newLane() *lane {
	reader, writer, err := os.Pipe()
	if err != nil {
		return new(lane)
	}
	rawReader, err := reader.SyscallConn()
	if err != nil {
		return new(lane)
	}
	rawWriter, err := writer.SyscallConn()
	if err != nil {
		return new(lane)
	}
	return &lane{reader: reader, writer: writer, rawReader: rawReader, rawWriter: rawWriter}
}

// pollTimeout bounds poll if other goroutines are always ready and the runtime never polls.
const pollTimeout = time.Millisecond

// poll returns after the Go runtime has asked the kernel which sockets are ready. It does nothing
// if the last poll was less than gap ago.
//
// The runtime polls only when a CPU is idle. If the garbage collector uses one CPU, and lists that
// follow each other use the others, only a background thread polls, every 10 ms. A write that waits
// for the network then waits that long, several times. So the holder of the lane waits for the
// network as well: for a byte that is already in the lane's pipe.
func (l *lane) poll(gap time.Duration) {
	if l.rawReader == nil || time.Since(l.polled) < gap {
		return
	}
	if l.reader.SetReadDeadline(time.Now().Add(pollTimeout)) != nil {
		return
	}
	written := false
	_ = l.rawReader.Read(func(fd uintptr) (done bool) {
		l.empty(fd) // only the first byte in an empty pipe wakes; a poll that timed out left one
		if written {
			return true
		}
		written = true
		return !l.writeByte()
	})
	l.polled = time.Now()
}

// empty reads all bytes from the pipe.
func (l *lane) empty(fd uintptr) {
	var b [16]byte
	for {
		if n, err := syscall.Read(int(fd), b[:]); n <= 0 && err != syscall.EINTR {
			return
		}
	}
}

// writeByte writes one byte into the pipe. It never blocks.
func (l *lane) writeByte() (ok bool) {
	err := l.rawWriter.Control(func(fd uintptr) {
		n, err := syscall.Write(int(fd), []byte{0})
		ok = n == 1 && err == nil
	})
	return ok && err == nil
}
