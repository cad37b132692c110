package chaos

import (
	"fmt"
	"maps"
	"time"

	"github.com/anishathalye/porcupine"
	"k8s.io/apimachinery/pkg/watch"
)

// check holds a history against what Kubernetes promises; the first broken promise is the error.
func (h *history) check(plain, selecting []*follower) error {
	for _, f := range append(append([]*follower(nil), plain...), selecting...) {
		if f.err != nil {
			return fmt.Errorf("watch %s: %w", f.name, f.err)
		}
	}
	l, err := union(plain)
	if err != nil {
		return err
	}
	for _, f := range plain {
		for _, s := range f.spans {
			if err := s.checkWhole(l); err != nil {
				return fmt.Errorf("watch %s: %w", f.name, err)
			}
			if err := h.checkAcked(s); err != nil {
				return fmt.Errorf("watch %s: %w", f.name, err)
			}
		}
	}
	for _, f := range selecting {
		for _, s := range f.spans {
			if err := s.checkSelected(f, l); err != nil {
				return fmt.Errorf("selecting watch %s: %w", f.name, err)
			}
		}
	}
	if err := h.checkLists(l); err != nil {
		return err
	}
	return h.checkLinearizable()
}

// checkWhole: nothing that anybody saw within the span is missing in it, and what it listed was the state at that revision.
func (s *span) checkWhole(l *log) error {
	want := l.between(s.from, s.to)
	if len(want) != len(s.events) {
		return fmt.Errorf("%d events in (%d, %d], others saw %d there", len(s.events), s.from, s.to, len(want))
	}
	return l.checkListed(s.from, s.listed)
}

// checkListed compares a listing with the state that a follower knew at its revision.
func (l *log) checkListed(revision int64, listed map[string]int64) error {
	if state, ok := l.state(revision); ok && !maps.Equal(state, listed) {
		return fmt.Errorf("the list at %d has %v, who watched had %v", revision, listed, state)
	}
	return nil
}

// checkAcked: every acknowledged write within the span is an event of it.
func (h *history) checkAcked(s *span) error {
	seen := map[int64]string{}
	for _, c := range s.events {
		seen[c.revision] = c.name
	}
	for _, a := range h.acked {
		if a.version > s.from && a.version <= s.to && seen[a.version] != a.name {
			return fmt.Errorf("the acknowledged write of %s at %d is not among the events of (%d, %d]", a.name, a.version, s.from, s.to)
		}
	}
	return nil
}

// checkSelected: a watch with a selector tells objects that begin to match as added, and those that cease to as deleted.
func (s *span) checkSelected(f *follower, l *log) error {
	in := map[string]bool{}
	for name := range s.listed {
		in[name] = true
	}
	to := min(s.to, l.reaches(s.from))
	var want []change
	for _, c := range l.between(s.from, to) {
		matches := c.kind != watch.Deleted && f.matches(c.configMap())
		switch {
		case matches && in[c.name]:
			c.kind = watch.Modified
		case matches:
			c.kind = watch.Added
		case in[c.name]:
			c.kind = watch.Deleted
		default:
			continue
		}
		in[c.name] = matches
		want = append(want, c)
	}
	events := s.events
	for len(events) > 0 && events[len(events)-1].revision > to {
		events = events[:len(events)-1]
	}
	for i, c := range want {
		if i >= len(events) {
			return fmt.Errorf("%s of %s at %d is missing", c.kind, c.name, c.revision)
		}
		if got := events[i]; got.kind != c.kind || got.name != c.name || got.revision != c.revision {
			return fmt.Errorf("event %d is %s of %s at %d, expected %s of %s at %d", i, got.kind, got.name, got.revision, c.kind, c.name, c.revision)
		}
	}
	if len(events) > len(want) {
		return fmt.Errorf("%d events too many, the first: %+v", len(events)-len(want), events[len(want)])
	}
	return nil
}

// checkLists: every list is the state at its revision, and a consistent one is not older than what was acknowledged before it was asked for.
func (h *history) checkLists(l *log) error {
	for _, list := range h.lists {
		if err := l.checkListed(list.revision, list.items); err != nil {
			return err
		}
		if !list.consistent {
			continue
		}
		for _, a := range h.acked {
			if a.at < list.asked && a.version > list.revision {
				return fmt.Errorf("a list at %d was asked for after the write of %s at %d had been acknowledged", list.revision, a.name, a.version)
			}
		}
	}
	return nil
}

func (h *history) checkLinearizable() error {
	for _, part := range byName(h.settled()) {
		name := part[0].Input.(input).name
		switch porcupine.CheckOperationsTimeout(register, part, time.Minute) {
		case porcupine.Illegal:
			return fmt.Errorf("the history of %s is not linearizable:\n%s", name, describe(part))
		case porcupine.Unknown:
			return fmt.Errorf("the %d operations on %s are too many to decide", len(part), name)
		}
	}
	return nil
}

func describe(ops []porcupine.Operation) string {
	var text []byte
	for _, op := range ops {
		text = fmt.Appendf(text, "  client %d [%d, %d] %+v → %+v\n", op.ClientId, op.Call, op.Return, op.Input, op.Output)
	}
	return string(text)
}
