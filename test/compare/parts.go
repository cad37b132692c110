package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// system is started for its parts, which are measured in this order.
type system struct {
	name  string
	parts []part
}

// part is a load that gives some rows of the table. It ends when its work is done, or when its time
// is up.
type part struct {
	key   string
	rows  []string
	limit time.Duration // at a scale of at most 1
	run   func(ctx context.Context, m *measurement) error
}

// measurement is a running system with a client, and the figures of its parts.
type measurement struct {
	o    *options
	side side
	f    figures
	c    *cluster
	load *clients
}

// measureSystem starts a system and measures its parts. The error means that the system did not
// start. A part that fails, is cut off or is skipped has the reason instead of figures.
func (o *options) measureSystem(ctx context.Context, s side, f figures, sys system) error {
	start := s.startControl
	switch sys.name {
	case "node":
		start = s.startNode
	case "several":
		start = s.startSeveral
	}
	c, err := begin(ctx, o, s.name()+"-"+sys.name, start)
	if err == nil {
		defer c.stop()
		m := &measurement{o: o, side: s, f: f, c: c}
		if m.load, err = loadOn(ctx, c); err == nil {
			m.measureParts(ctx, sys.parts)
			return ctx.Err()
		}
	}
	for _, p := range sys.parts {
		f.note(p.rows, "not started: "+err.Error())
	}
	return err
}

func (m *measurement) measureParts(ctx context.Context, parts []part) {
	dead := "" // the part during which the system ended
	for i, p := range parts {
		if m.o.skip[p.key] || ctx.Err() != nil {
			continue
		}
		if dead != "" {
			m.f.note(p.rows, "left out: the server ended in "+dead)
			continue
		}
		limit := time.Duration(float64(p.limit) * max(1, m.o.scale))
		progress("%s: %s, part %d of %d of this system, at most %s", m.side.name(), p.key, i+1, len(parts), limit)
		began := time.Now()
		err := m.within(ctx, p, limit, min(15*time.Second, limit))
		if slices.ContainsFunc(m.c.control, (*process).ended) {
			dead = p.key
		}
		var cut *cutOff
		switch {
		case err == nil:
			progress("%s: %s: done after %s", m.side.name(), p.key, time.Since(began).Round(time.Second))
		case errors.As(err, &cut):
			progress("%s: %s: %v", m.side.name(), p.key, err)
			m.f.note(p.rows, err.Error())
		default:
			progress("%s: %s: %v", m.side.name(), p.key, err)
			note := "failed: " + err.Error()
			if dead != "" {
				note = "not survived"
			}
			m.f.note(p.rows, note)
		}
		if m.o.profile && dead == "" {
			if err := m.o.keepHeap(ctx, m.load, m.side.name()+"-"+p.key, m.c.control); err != nil {
				progress("%s: %s: %v", m.side.name(), p.key, err)
			}
		}
	}
}

// cutOff is the error of a part whose time was up.
type cutOff struct {
	after time.Duration
	done  string // its progress
}

func (e *cutOff) Error() string {
	if e.done == "" {
		return fmt.Sprintf("cut off after %s", e.after)
	}
	return fmt.Sprintf("cut off after %s: %s", e.after, e.done)
}

// within runs a part for at most limit, and prints its progress now and then. When the time is up
// it cancels the part's context. If the part still waits for a server that does not answer, within
// kills the server's processes after the grace, which ends all connections.
func (m *measurement) within(ctx context.Context, p part, limit, grace time.Duration) error {
	limited, stop := context.WithTimeout(ctx, limit)
	defer stop()
	ended := make(chan error, 1)
	began := time.Now()
	m.load.meter.begin(0)
	go func() { ended <- p.run(limited, m) }()
	ticker := time.NewTicker(15 * time.Second)
	defer ticker.Stop()
	var far string // progress when the time was up
	up, kill := limited.Done(), (<-chan time.Time)(nil)
	for killed := false; ; {
		select {
		case err := <-ended:
			if err != nil && limited.Err() != nil && ctx.Err() == nil {
				return &cutOff{limit, far}
			}
			return err
		case <-ticker.C:
			progress("%s: %s: %s of at most %s %s", m.side.name(), p.key, time.Since(began).Round(time.Second), limit, m.load.meter)
		case <-up:
			up, far, kill = nil, m.load.meter.String(), time.After(grace)
		case <-kill:
			if killed {
				return &cutOff{limit, far + " and it could not be stopped"}
			}
			killed, kill = true, time.After(4*grace)
			for _, process := range m.c.all() {
				_ = process.cmd.Process.Signal(syscall.SIGKILL)
				<-process.done
			}
		}
	}
}

// note records a reason instead of missing figures.
func (f figures) note(rows []string, reason string) {
	for _, row := range rows {
		if f[row].value == 0 {
			f[row] = figure{note: reason}
		}
	}
}

// meter counts a part's calls. Safe for concurrent use; nil counts nothing.
type meter struct{ done, all atomic.Int64 }

// begin resets the count and sets the number of expected calls.
func (m *meter) begin(all int) {
	if m != nil {
		m.done.Store(0)
		m.all.Store(int64(all))
	}
}

func (m *meter) add() {
	if m != nil {
		m.done.Add(1)
	}
}

func (m *meter) String() string {
	if m == nil || m.all.Load() == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d calls", m.done.Load(), m.all.Load())
}
