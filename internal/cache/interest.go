package cache

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/knarr-project/knarr/internal/failpoint"
)

// Matches reports whether the interest includes the entry.
func (i *Interest) Matches(e *Entry) bool {
	return (i.Namespace == "" || i.Namespace == e.Namespace) &&
		(i.Name == "" || i.Name == e.Name) &&
		(i.Labels == nil || i.Labels.Matches(&e.Header.Labels)) &&
		(i.Fields == nil || i.Fields.Matches(e.Selectable()))
}

// normal returns the same interest with nil for selectors that match everything, and with exact
// metadata fields as Namespace and Name.
func (i Interest) normal() Interest {
	if i.Labels != nil && i.Labels.Empty() {
		i.Labels = nil
	}
	if i.Fields == nil || i.Fields.Empty() {
		i.Fields = nil
		return i
	}
	for _, r := range i.Fields.Requirements() {
		if r.Operator != selection.Equals && r.Operator != selection.DoubleEquals {
			continue
		}
		// Keep the selector: two different values for one field match nothing.
		switch {
		case r.Field == "metadata.name" && i.Name == "":
			i.Name = r.Value
		case r.Field == "metadata.namespace" && i.Namespace == "":
			i.Namespace = r.Value
		}
	}
	return i
}

// view returns the event as a watcher with this interest sees it; false if it does not.
func (i *Interest) view(e *event) (Change, bool) {
	was, is := e.old != nil && i.Matches(e.old), e.new != nil && i.Matches(e.new)
	switch {
	case was && is:
		return Change{Type: Modified, Entry: e.new, Old: e.old, Revision: e.revision}, true
	case is:
		return Change{Type: Added, Entry: e.new, Revision: e.revision}, true
	case was && !(e.new != nil && failpoint.Bug("selector-forgets")):
		return Change{Type: Deleted, Entry: e.deleted(), Old: e.old, Revision: e.revision}, true
	}
	return Change{}, false
}

// A topic is a property of an interest that can be looked up: an object's name, the exact value of
// a field, or a namespace. Cursors wait under their narrowest topic, so a change wakes only cursors
// that may want it. If a thousand nodes watch their own pods, it wakes one instead of a thousand.
type topic struct {
	field string // a field's name, or one of the two constants below
	a, b  string
}

const (
	byName      = "\x00name"      // a: namespace ("" matches any), b: name
	byNamespace = "\x00namespace" // a: namespace
)

// topic returns the narrowest topic of a normal interest; false if there is none.
func (i *Interest) topic() (topic, bool) {
	if i.Name != "" {
		return topic{byName, i.Namespace, i.Name}, true
	}
	if i.Fields != nil {
		for _, r := range i.Fields.Requirements() {
			if (r.Operator == selection.Equals || r.Operator == selection.DoubleEquals) && r.Field != "metadata.namespace" {
				return topic{r.Field, r.Value, ""}, true
			}
		}
	}
	if i.Namespace != "" {
		return topic{byNamespace, i.Namespace, ""}, true
	}
	return topic{}, false
}

// topicCursors holds the cursors of one topic, and the numbers of its events in the log.
type topicCursors struct {
	cursors []*Cursor
	readers int // cursors that read the objects
	events  []uint64
	// dropped is the number after the topic's last event that has left the log.
	dropped uint64
}

func (r *topicCursors) forget(first uint64) {
	n, _ := slices.BinarySearch(r.events, first)
	if n > 0 {
		r.dropped = r.events[n-1] + 1
		r.events = slices.Delete(r.events, 0, n)
	}
}

// cursors holds the open cursors of a kind. Guarded by Kind.mu.
type cursors struct {
	n       int
	readers int       // cursors without a topic that read the objects
	all     []*Cursor // cursors without a topic
	topics  map[topic]*topicCursors
	fields  map[string]int // number of topics by field
	waking  []*Cursor
	anyName int // number of topics for a name in any namespace
}

func (cs *cursors) add(c *Cursor, log *eventLog) {
	cs.n++
	t, ok := c.interest.topic()
	if !ok {
		cs.all = append(cs.all, c)
		if !c.light {
			cs.readers++
		}
		return
	}
	waiting := cs.topics[t]
	if waiting == nil {
		waiting = &topicCursors{dropped: log.first}
		if cs.topics == nil {
			cs.topics, cs.fields = map[topic]*topicCursors{}, map[string]int{}
		}
		cs.topics[t] = waiting
		cs.fields[t.field]++
		if t.field == byName && t.a == "" {
			cs.anyName++
		}
		for n := log.first; n < log.next; n++ {
			if e := log.at(n); concerns(e, t) {
				waiting.events = append(waiting.events, n)
			}
		}
	}
	waiting.cursors = append(waiting.cursors, c)
	if !c.light {
		waiting.readers++
	}
	c.topic, c.topicCursors = t, waiting
}

func (cs *cursors) remove(c *Cursor) {
	if c.failed.Load() != nil {
		return // it is in no list any more
	}
	list := &cs.all
	if c.topicCursors != nil {
		list = &c.topicCursors.cursors
	}
	i := slices.Index(*list, c)
	if i < 0 {
		return
	}
	cs.n--
	if !c.light && c.topicCursors != nil {
		c.topicCursors.readers--
	} else if !c.light {
		cs.readers--
	}
	*list = slices.Delete(*list, i, i+1)
	if c.topicCursors != nil && len(c.topicCursors.cursors) == 0 {
		delete(cs.topics, c.topic)
		if cs.fields[c.topic.field]--; cs.fields[c.topic.field] == 0 {
			delete(cs.fields, c.topic.field)
		}
		if c.topic.field == byName && c.topic.a == "" {
			cs.anyName--
		}
	}
}

func concerns(e *event, t topic) bool {
	return e.old != nil && e.old.has(t) || e.new != nil && e.new.has(t)
}

func (e *Entry) has(t topic) bool {
	switch t.field {
	case byName:
		return e.Name == t.b && (t.a == "" || t.a == e.Namespace)
	case byNamespace:
		return e.Namespace == t.a
	}
	return e.Selectable().Get(t.field) == t.a
}

// note files event number n under its topics and collects the cursors to wake. first is the oldest
// number in the log.
func (cs *cursors) note(e *event, n, first uint64) {
	if cs.n == 0 {
		return
	}
	cs.wake(cs.all)
	if len(cs.topics) == 0 {
		return
	}
	some := e.new
	if some == nil {
		some = e.old
	}
	// The names of an object never change.
	cs.file(topic{byName, some.Namespace, some.Name}, n, first)
	if cs.anyName > 0 && some.Namespace != "" {
		cs.file(topic{byName, "", some.Name}, n, first)
	}
	if some.Namespace != "" {
		cs.file(topic{byNamespace, some.Namespace, ""}, n, first)
	}
	for f := range cs.fields {
		if f == byName || f == byNamespace {
			continue
		}
		is := some.Selectable().Get(f)
		cs.file(topic{f, is, ""}, n, first)
		if e.old != nil && e.new != nil {
			if was := e.old.Selectable().Get(f); was != is {
				cs.file(topic{f, was, ""}, n, first)
			}
		}
	}
}

// read reports whether a cursor will read the object of a new entry.
func (cs *cursors) read(e *Entry) bool {
	if cs.readers > 0 {
		return true
	}
	if len(cs.topics) == 0 {
		return false
	}
	if cs.readIn(topic{byName, e.Namespace, e.Name}) || cs.anyName > 0 && cs.readIn(topic{byName, "", e.Name}) || cs.readIn(topic{byNamespace, e.Namespace, ""}) {
		return true
	}
	for f := range cs.fields {
		if f != byName && f != byNamespace && cs.readIn(topic{f, e.Selectable().Get(f), ""}) {
			return true
		}
	}
	return false
}

func (cs *cursors) readIn(t topic) bool {
	waiting, ok := cs.topics[t]
	return ok && waiting.readers > 0
}

func (cs *cursors) file(t topic, n, first uint64) {
	if waiting, ok := cs.topics[t]; ok {
		waiting.forget(first)
		waiting.events = append(waiting.events, n)
		cs.wake(waiting.cursors)
	}
}

func (cs *cursors) wake(list []*Cursor) {
	for _, c := range list {
		if !c.signalled.Swap(true) {
			cs.waking = append(cs.waking, c)
		}
	}
}

// each calls fn for every cursor.
func (cs *cursors) each(fn func(*Cursor)) {
	for _, c := range cs.all {
		fn(c)
	}
	for _, waiting := range cs.topics {
		for _, c := range waiting.cursors {
			fn(c)
		}
	}
}

// take returns the cursors to wake, without duplicates.
func (cs *cursors) take() []*Cursor {
	w := cs.waking
	cs.waking = nil
	return w
}

func wakeAll(list []*Cursor) {
	for _, c := range list {
		c.signal()
	}
}

// fail ends all cursors with an error.
func (cs *cursors) fail(err error) {
	cs.each(func(c *Cursor) { c.fail(err) })
	*cs = cursors{}
}

// Everything is the interest in all objects.
var Everything = Interest{Labels: labels.Everything(), Fields: fields.Everything()}
