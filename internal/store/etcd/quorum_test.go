package etcd

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/network/nettest"
	"github.com/knarr-project/knarr/internal/store"
)

// wires forwards the connections between members. While they are cut, all data on
// them is lost, and no connection is closed.
type wires struct {
	cut   atomic.Bool
	delay atomic.Int64 // nanoseconds that each piece needs on its way

	done chan struct{} // closed at the end of the test

	mu    sync.Mutex
	conns []net.Conn
}

func newWires(t testing.TB) *wires {
	w := &wires{done: make(chan struct{})}
	t.Cleanup(func() {
		close(w.done)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range w.conns {
			c.Close()
		}
	})
	return w
}

// through makes a member reachable over the wires alone.
func (w *wires) through(t testing.TB, o Options) Options {
	t.Helper()
	l, err := net.Listen("tcp", o.Peers.Advertise)
	if err != nil {
		t.Fatal(err)
	}
	o.Peers.Listen = nettest.FreeAddress(t)
	to := o.Peers.Listen
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.join(c, to)
		}
	}()
	t.Cleanup(func() { l.Close() })
	return o
}

func (w *wires) join(from net.Conn, address string) {
	to, err := net.Dial("tcp", address)
	if err != nil {
		from.Close()
		return
	}
	w.mu.Lock()
	w.conns = append(w.conns, from, to)
	w.mu.Unlock()
	go w.carry(from, to)
	w.carry(to, from)
}

// carry copies one direction. Each piece arrives after the delay, however many are under way.
func (w *wires) carry(to, from net.Conn) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	way := make(chan piece, 4096)
	defer close(way)
	go func() {
		for p := range way {
			time.Sleep(time.Until(p.due)) // the delay is what this models
			if _, err := to.Write(p.bytes); err != nil {
				from.Close()
			}
		}
		to.Close()
	}()
	for {
		buffer := make([]byte, 16<<10)
		n, err := from.Read(buffer)
		if n > 0 && !w.cut.Load() {
			way <- piece{buffer[:n], time.Now().Add(time.Duration(w.delay.Load()))}
		}
		if err != nil {
			if w.cut.Load() && errors.Is(err, io.EOF) {
				<-w.done // the other side does not see the end
			}
			return
		}
	}
}

// threeOver is three members that reach each other over the wires alone.
func threeOver(t testing.TB, w *wires) []*Engine {
	t.Helper()
	ca := newAuthority(t)
	var all []*Engine
	for _, name := range []string{"a", "b", "c"} {
		o := w.through(t, ca.options(t, name))
		if len(all) == 0 {
			all = append(all, open(t, o))
			continue
		}
		all = append(all, joins(t, all[0], o))
	}
	return all
}

// A server without the others answers, so that its clients go to another one. Their own patience
// here is much longer than that of the engine.
func TestWithoutAQuorumOperationsEnd(t *testing.T) {
	t.Parallel()
	w := newWires(t)
	all := threeOver(t, w)
	putKey(t, all[0], "/k", "v")
	for _, e := range all {
		sees(t, e, "/k", "v")
	}
	w.cut.Store(true)
	for round := range 3 { // a client repeats a refused request
		var asked sync.WaitGroup
		for _, e := range all {
			for what, do := range map[string]func(context.Context) error{
				"revision": func(ctx context.Context) error { _, err := e.Revision(ctx); return err },
				"get":      func(ctx context.Context) error { _, _, err := e.Get(ctx, "/k", 0); return err },
				"range":    func(ctx context.Context) error { _, err := e.Range(ctx, "/", store.RangeOptions{}); return err },
				"commit": func(ctx context.Context) error {
					_, err := e.Commit(ctx, nil, store.Op{Key: "/k", Value: []byte("w")})
					return err
				},
				"grant": func(ctx context.Context) error { _, err := e.Grant(ctx, time.Minute); return err },
				"watch": func(ctx context.Context) error { _, err := e.Watch(ctx, "/", 0); return err },
			} {
				asked.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					switch err := do(ctx); {
					case !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil:
						t.Errorf("round %d, %s of %s: %v", round, what, e.peers.Name, err)
					case round > 0 && !errors.Is(err, errNoLeader):
						t.Errorf("round %d, %s of %s waits although the quorum is lost: %v", round, what, e.peers.Name, err)
					}
				})
			}
		}
		asked.Wait()
	}
	w.cut.Store(false)
	for _, e := range all {
		putKey(t, e, "/after/"+e.peers.Name, "v")
		eventually(t, "read again", func() error { _, _, err := e.Get(t.Context(), "/k", 0); return err })
	}
}
