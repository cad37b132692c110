package deliver

import (
	"os"
	"syscall"
	"time"
)

// lane is taken by one large answer at a time. Its pipe is for listening to the network; nothing goes through it but the bytes that wake the one who listens.
type lane struct {
	ear, mouth *os.File // closed with the lane, when nobody has it any more
	raw        syscall.RawConn
	listened   time.Time
}

// newLane makes a lane. Where there is no pipe to be had it is one all the same: requests that come while every CPU is busy are heard later then.
func newLane() *lane {
	ear, mouth, err := os.Pipe()
	if err != nil {
		return new(lane)
	}
	raw, err := ear.SyscallConn()
	if err != nil {
		return new(lane)
	}
	return &lane{ear: ear, mouth: mouth, raw: raw}
}

// listenFor is how long listening may take, where other goroutines are always ready to run and nobody listens.
const listenFor = time.Millisecond

// listen returns when the runtime has asked the kernel which sockets are ready. It does so by itself only when a CPU has nothing else to run. With one CPU to a garbage collection
// and the others to lists, one of which always goes on where another one leaves off, that is every ten milliseconds, by a thread for just this case, and each time a write
// waits for the network it waits that long. So the lane's holder waits for the network too, with a byte that is there already, unless it has done so less than gap ago.
func (l *lane) listen(gap time.Duration) {
	if l.raw == nil || time.Since(l.listened) < gap {
		return
	}
	if l.ear.SetReadDeadline(time.Now().Add(listenFor)) != nil {
		return
	}
	said := false
	_ = l.raw.Read(func(fd uintptr) (done bool) {
		var b [16]byte // some are left over by who has not waited for theirs
		if said {
			_, err := syscall.Read(int(fd), b[:])
			return err != syscall.EAGAIN && err != syscall.EINTR
		}
		said = true
		_, err := l.mouth.Write(b[:1])
		return err != nil
	})
	l.listened = time.Now()
}
