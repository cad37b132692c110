package transport

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// writer writes a response as the API server writes a watch: detached if the transport can, else
// in its handler.
type writer struct {
	pool *taskpool.Pool
	out  Response // nil: the handler writes
	task taskpool.Task
	// news wakes the handler.
	news chan struct{}
	// done is closed when the response has ended.
	done chan struct{}

	mu     sync.Mutex // guards what follows
	todo   []byte
	ended  bool // nothing comes after todo
	hungUp bool
}

func newWriter(pool *taskpool.Pool) *writer {
	return &writer{pool: pool, news: make(chan struct{}, 1), done: make(chan struct{})}
}

// begin begins the response, and detaches it if it can be.
func (wr *writer) begin(tr Transport, w http.ResponseWriter, r *http.Request) (err error) {
	if tr.CanDetachConnection(r) {
		w.Header().Set("Connection", "close")
		w.Header().Set("Transfer-Encoding", "chunked")
		w.WriteHeader(http.StatusOK)
		if wr.out, err = tr.DetachConnection(w, r); err != nil {
			return err
		}
	} else {
		w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
		wr.out = tr.DetachStream(w, r)
	}
	if wr.out == nil {
		return nil
	}
	wr.task = wr.out.Task(wr.turn)
	if err := wr.out.Start(&wr.task, wr.hangUp); err != nil {
		return err
	}
	wr.pool.Wake(&wr.task)
	return nil
}

// write gives the writer more to write. "" ends the response after what it was given before.
func (wr *writer) write(text string) {
	wr.mu.Lock()
	wr.todo, wr.ended = append(wr.todo, text...), text == ""
	wr.mu.Unlock()
	wr.wake()
}

func (wr *writer) wake() {
	if wr.out != nil {
		wr.pool.Wake(&wr.task)
		return
	}
	select {
	case wr.news <- struct{}{}:
	default:
	}
}

// hangUp runs aside: it must not block, and the caller may hold a lock that turn needs.
func (wr *writer) hangUp() {
	go func() {
		wr.mu.Lock()
		wr.hungUp = true
		wr.mu.Unlock()
		wr.wake()
	}()
}

// turn writes what there is room for.
func (wr *writer) turn() time.Duration {
	wr.mu.Lock()
	defer wr.mu.Unlock()
	room := wr.out.Room()
	if wr.hungUp || room > 0 && wr.ended && len(wr.todo) == 0 {
		wr.out.Finish(wr.hungUp, func() { close(wr.done) })
		return taskpool.Ended
	}
	n := min(room, len(wr.todo), 50_000)
	if n == 0 {
		return taskpool.Idle
	}
	piece := wr.todo[:n]
	wr.todo = wr.todo[n:]
	if wr.out.Chunked() {
		piece = fmt.Appendf(nil, "%x\r\n%s\r\n", n, piece)
	}
	var buffer []byte
	wr.out.Begin(buffer)
	_, err := wr.out.Write(piece)
	if _, failed := wr.out.End(&buffer); err != nil || failed != nil {
		wr.hungUp = true
	}
	return taskpool.Again
}

// wait writes in the handler until the response has ended, unless it is detached.
func (wr *writer) wait(ctx context.Context, w io.Writer) {
	if wr.out != nil {
		return
	}
	defer close(wr.done)
	for {
		wr.mu.Lock()
		piece, ended := wr.todo, wr.ended
		wr.todo = nil
		wr.mu.Unlock()
		if _, err := w.Write(piece); err != nil {
			return
		}
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
		if ended {
			return
		}
		select {
		case <-wr.news:
		case <-ctx.Done():
			return
		}
	}
}
