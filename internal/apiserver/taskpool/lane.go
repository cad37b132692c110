package taskpool

import (
	"os"
	"syscall"
	"time"
)

// lane is taken by one large answer at a time. Its pipe is for listening to the network; nothing goes through it but the bytes that wake the one who listens.
type lane struct {
	ear, mouth  *os.File // closed with the lane, when nobody has it any more
	hears, says syscall.RawConn
	listened    time.Time
}

// newLane makes a lane. Where there is no pipe to be had it is one all the same: requests that come while every CPU is busy are heard later then.
func newLane() *lane {
	ear, mouth, err := os.Pipe()
	if err != nil {
		return new(lane)
	}
	hears, err := ear.SyscallConn()
	if err != nil {
		return new(lane)
	}
	says, err := mouth.SyscallConn()
	if err != nil {
		return new(lane)
	}
	return &lane{ear: ear, mouth: mouth, hears: hears, says: says}
}

// listenFor is how long listening may take, where other goroutines are always ready to run and nobody listens.
const listenFor = time.Millisecond

// listen returns when the runtime has asked the kernel which sockets are ready. It does so by itself only when a CPU has nothing else to run. With one CPU to a garbage collection
// and the others to lists, one of which always goes on where another one leaves off, that is every ten milliseconds, by a thread for just this case, and each time a write
// waits for the network it waits that long. So the lane's holder waits for the network too, with a byte that is there already, unless it has done so less than gap ago.
func (l *lane) listen(gap time.Duration) {
	if l.hears == nil || time.Since(l.listened) < gap {
		return
	}
	if l.ear.SetReadDeadline(time.Now().Add(listenFor)) != nil {
		return
	}
	said := false
	_ = l.hears.Read(func(fd uintptr) (done bool) {
		l.drain(fd) // what was left over by who has not waited for theirs, too: only an empty pipe's first byte wakes
		if said {
			return true
		}
		said = true
		return !l.speak()
	})
	l.listened = time.Now()
}

func (l *lane) drain(fd uintptr) {
	var b [16]byte
	for {
		if n, err := syscall.Read(int(fd), b[:]); n <= 0 && err != syscall.EINTR {
			return
		}
	}
}

// speak never waits.
func (l *lane) speak() (said bool) {
	err := l.says.Control(func(fd uintptr) {
		n, err := syscall.Write(int(fd), []byte{0})
		said = n == 1 && err == nil
	})
	return said && err == nil
}
