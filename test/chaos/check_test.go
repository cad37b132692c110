package chaos

import (
	"fmt"
	"maps"
	"time"

	"github.com/anishathalye/porcupine"
	"k8s.io/apimachinery/pkg/watch"
)

// check compares a history with Kubernetes' guarantees. The error is the first broken guarantee.
func (h *history) check(plain, selecting []*follower) error {
	for _, f := range append(append([]*follower(nil), plain...), selecting...) {
		if f.err != nil {
			return fmt.Errorf("watch %s: %w", f.name, f.err)
		}
	}
	if err := h.checkAnswers(); err != nil {
		return err
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
			h.counts.events += len(s.events)
			switch {
			case f.begins == resumed && s.opened:
				h.counts.resumed++
			case f.begins == byInitial:
				h.counts.initial++
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
	if err := h.checkReads(l); err != nil {
		return err
	}
	if err := h.checkChanges(l); err != nil {
		return err
	}
	for _, op := range h.ops {
		if op.Output.(output).outcome != unknown {
			h.counts.operation(op.Input.(input))
		}
	}
	return h.checkLinearizable(l)
}

// checkWhole checks that the span lacks no event that other followers saw, and that its listing was
// the state at that revision.
func (s *span) checkWhole(l *log) error {
	want := l.between(s.from, s.to)
	if len(want) != len(s.events) {
		return fmt.Errorf("%d events in (%d, %d], others saw %d there", len(s.events), s.from, s.to, len(want))
	}
	for i, c := range s.events {
		if c != want[i] {
			return fmt.Errorf("event %d in (%d, %d] is %+v, others saw %+v", i, s.from, s.to, c, want[i])
		}
	}
	if s.listed == nil {
		return nil
	}
	_, err := l.checkListed(&listing{revision: s.from, items: s.listed})
	return err
}

// checkListed compares a listing with a follower's state at its revision, if any follower knew it.
func (l *log) checkListed(list *listing) (compared bool, err error) {
	state, ok := l.state(list.revision)
	if !ok {
		return false, nil
	}
	maps.DeleteFunc(state, func(name string, m mark) bool {
		return name <= list.after || list.upTo != "" && name > list.upTo || list.selecting && !m.chosen
	})
	if !maps.Equal(state, list.items) {
		return true, fmt.Errorf("the list at %d (after %q, up to %q) has %v, the watcher had %v", list.revision, list.after, list.upTo, list.items, state)
	}
	return true, nil
}

// checkAcked checks that every acknowledged write in the span is one of its events.
func (h *history) checkAcked(s *span) error {
	seen := map[int64]string{}
	for _, c := range s.events {
		seen[c.revision] = c.item.name
	}
	for _, a := range h.acked {
		if a.version > s.from && a.version <= s.to && seen[a.version] != a.name {
			return fmt.Errorf("the acknowledged write of %s at %d is not among the events of (%d, %d]", a.name, a.version, s.from, s.to)
		}
	}
	return nil
}

// checkSelected checks that a watch with a selector reports objects that start to match as added,
// and those that stop to match as deleted.
func (s *span) checkSelected(f *follower, l *log) error {
	in := map[string]bool{}
	for name := range s.listed {
		in[name] = true
	}
	to := min(s.to, l.reaches(s.from))
	var want []change
	for _, c := range l.between(s.from, to) {
		name := c.item.name
		matches := c.kind != watch.Deleted && f.matches(c.item)
		switch {
		case matches && in[name]:
			c.kind = watch.Modified
		case matches:
			c.kind = watch.Added
		case in[name]:
			c.kind = watch.Deleted
		default:
			continue
		}
		in[name] = matches
		want = append(want, c)
	}
	events := s.events
	for len(events) > 0 && events[len(events)-1].revision > to {
		events = events[:len(events)-1]
	}
	for i, c := range want {
		if i >= len(events) {
			return fmt.Errorf("%s of %s at %d is missing", c.kind, c.item.name, c.revision)
		}
		if got := events[i]; got.kind != c.kind || got.item.name != c.item.name || got.revision != c.revision {
			return fmt.Errorf("event %d is %s of %s at %d, expected %s of %s at %d", i, got.kind, got.item.name, got.revision, c.kind, c.item.name, c.revision)
		}
	}
	if len(events) > len(want) {
		return fmt.Errorf("%d events too many, the first: %+v", len(events)-len(want), events[len(want)])
	}
	return nil
}

// checkLists checks that every list is the state at its revision. That revision must be the one
// demanded, or not older than it, or (for a consistent list) not older than any write acknowledged
// before the request.
func (h *history) checkLists(l *log) error {
	for i := range h.lists {
		list := &h.lists[i]
		compared, err := l.checkListed(list)
		switch {
		case err != nil:
			return err
		case list.exact && list.revision != list.wanted:
			return fmt.Errorf("a list that was to be of revision %d is of %d", list.wanted, list.revision)
		case list.revision < list.wanted:
			return fmt.Errorf("a list that was to be no older than %d is of %d", list.wanted, list.revision)
		}
		h.counts.add(list, compared)
		if !list.consistent {
			continue
		}
		for _, a := range h.acked {
			if a.at < list.asked && a.version > list.revision {
				return fmt.Errorf("a list at revision %d was requested after the write of %s at %d had been acknowledged", list.revision, a.name, a.version)
			}
		}
	}
	return nil
}

// checkReads checks reads with a minimum revision: the object read must not have been replaced or
// deleted at that revision.
func (h *history) checkReads(l *log) error {
	for _, r := range h.reads {
		for _, c := range l.between(r.version, r.wanted) {
			if c.item.name == r.name {
				return fmt.Errorf("%s was read as of %d, which was to be no older than %d; it had changed at %d", r.name, r.version, r.wanted, c.revision)
			}
		}
	}
	return nil
}

// checkChanges checks that a client wrote every change in a watch. Refused writes and dry runs must
// not appear.
func (h *history) checkChanges(l *log) error {
	written := map[string]bool{"": true} // a status that no client has written yet
	for _, op := range h.ops {
		in, out := op.Input.(input), op.Output.(output)
		if !in.dry && (out.outcome == done || out.outcome == unknown) {
			written[in.value] = true
		}
	}
	for _, c := range l.changes {
		if c.item.value == "" || !written[c.item.value] || !written[c.item.status] {
			return fmt.Errorf("%s of %s at %d: no client wrote %+v", c.kind, c.item.name, c.revision, c.item)
		}
	}
	return nil
}

// counts tells how much was compared with the model.
type counts struct {
	operations, sweeps, reports, dry, selecting, exact, pages, others, compared, resumed, initial, events int
	// Names whose history the checker did not finish.
	undecided int
}

// missing returns the first guarantee that the histories did not test, or "".
func (c *counts) missing() string {
	for _, must := range []struct {
		n    int
		what string
	}{
		{c.operations, "operation that was answered"}, {c.sweeps, "deletion of all"}, {c.dry, "dry run"}, {c.selecting, "list by label"}, {c.exact, "list of exactly one revision"}, {c.pages, "part of a list"}, {c.compared, "list that could be compared with what watches had"},
		{c.resumed, "watch from a revision"}, {c.initial, "watch with initial events"}, {c.events, "event"},
	} {
		if must.n == 0 {
			return must.what
		}
	}
	return ""
}

func (c *counts) operation(in input) {
	c.operations++
	switch {
	case in.dry:
		c.dry++
	case in.do == sweep:
		c.sweeps++
	case in.do == report:
		c.reports++
	}
}

func (c *counts) add(list *listing, compared bool) {
	if list.selecting {
		c.selecting++
	}
	switch {
	case list.after != "" || list.upTo != "":
		c.pages++
	case list.exact:
		c.exact++
	default:
		c.others++
	}
	if compared {
		c.compared++
	}
}

func (c *counts) sum(o *counts) {
	c.operations += o.operations
	c.sweeps += o.sweeps
	c.reports += o.reports
	c.dry += o.dry
	c.selecting += o.selecting
	c.exact += o.exact
	c.pages += o.pages
	c.others += o.others
	c.compared += o.compared
	c.resumed += o.resumed
	c.initial += o.initial
	c.events += o.events
	c.undecided += o.undecided
}

func (c *counts) String() string {
	return fmt.Sprintf("%d operations on objects (%d by deletions of all, %d of statuses, %d dry runs); lists: %d exact, %d parts of forgotten ones, %d others, %d of them by label, %d compared with what watches had; watches: %d resumed, %d with initial events, %d events; undecided: %d",
		c.operations, c.sweeps, c.reports, c.dry, c.exact, c.pages, c.others, c.selecting, c.compared, c.resumed, c.initial, c.events, c.undecided)
}

func (h *history) checkLinearizable(l *log) error {
	for _, part := range byName(h.settled(l)) {
		name := part[0].Input.(input).name
		switch porcupine.CheckOperationsTimeout(register, part, time.Minute) {
		case porcupine.Illegal:
			return fmt.Errorf("the history of %s is not linearizable:\n%s", name, describe(part))
		case porcupine.Unknown:
			// Too many operations for this machine and a minute; that says nothing about the
			// server.
			h.counts.undecided++
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
