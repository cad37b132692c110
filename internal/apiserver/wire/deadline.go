package wire

import (
	"net/http"
	"sync"
	"time"
)

// CloseGrace is how long a client may take for the remaining bytes when its request is over: 5 s of
// a minute, at least a second.
func CloseGrace(timeout time.Duration) time.Duration { return max(time.Second, timeout/12) }

// SetDeadlines prepares the end of a request. end stops reading from the client at once, and
// writing a little later, so that a slow client does not hold the request's seats, memory and
// goroutine any longer. release is called after the response; then end does nothing.
func SetDeadlines(w http.ResponseWriter, timeout time.Duration) (end, release func()) {
	var mu sync.Mutex // guards the following variables; held while deadlines are set
	var answered, late bool
	end = func() {
		mu.Lock()
		defer mu.Unlock()
		if answered {
			return
		}
		late = true
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now())
		_ = rc.SetWriteDeadline(time.Now().Add(CloseGrace(timeout)))
	}
	release = func() {
		mu.Lock()
		defer mu.Unlock()
		answered = true
		if !late {
			return
		}
		// The connection may carry other requests. The rest of this response keeps its deadline.
		rc := http.NewResponseController(w)
		_ = rc.Flush()
		_ = rc.SetReadDeadline(time.Time{})
		_ = rc.SetWriteDeadline(time.Time{})
	}
	return end, release
}
