package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/insight/causes"
)

// Tree is the story of a change.
type Tree struct {
	// Began is when the first root was committed; Took is the time until the last hop.
	Began time.Time     `json:"began"`
	Took  time.Duration `json:"tookNanoseconds"`
	// Writes is the number of writes in the story.
	Writes int    `json:"writes"`
	Hops   []*Hop `json:"hops"`
	// Hidden counts the writes of objects that the user may not get. Truncated says that the story
	// is longer than an answer.
	Hidden    int  `json:"hidden,omitempty"`
	Truncated bool `json:"truncated,omitempty"`
	// Missing are the servers that did not answer, with the reasons.
	Missing map[string]string `json:"missing,omitempty"`
	// Silent are the nodes that did not tell what happened there, with the reasons. Steps of their
	// pods come from events and conditions.
	Silent map[string]string `json:"silentNodes,omitempty"`
}

// Source is where a hop is known from.
type Source string

const (
	FromLog       Source = "causal log"
	FromNode      Source = "node"
	FromEvent     Source = "event"
	FromCondition Source = "condition" // with a precision of a second
)

// Hop is one step.
type Hop struct {
	causes.Object
	// What happened, such as "created" or "bound to n1".
	What string `json:"what"`
	// Maker is the component or the user, in short form; Actor is the authenticated user.
	Maker string `json:"maker,omitempty"`
	Actor string `json:"actor,omitempty"`
	// Revision is that of the write; 0 for a step of a node. Times is the number of writes that the
	// hop stands for, of which Revision is the first.
	Revision int64   `json:"revision,omitempty"`
	Times    int     `json:"times,omitempty"`
	Others   []int64 `json:"otherRevisions,omitempty"` // the writes after the first one
	Because  []int64 `json:"because,omitempty"`
	Inferred bool    `json:"inferred,omitempty"`
	Request  string  `json:"request,omitempty"`
	// Trace is the W3C traceparent of the request, if it was part of a trace.
	Trace string `json:"traceparent,omitempty"`
	// Note says how the maker decided, such as the scores of the scheduler.
	Note   string `json:"note,omitempty"`
	Source Source `json:"source"`
	// Begin is when the cause happened; At is when the hop was done, and Last when its last write
	// was, if there are several.
	Begin time.Time `json:"begin"`
	At    time.Time `json:"at"`
	Last  time.Time `json:"last,omitzero"`
	Hops  []*Hop    `json:"hops,omitempty"`
}

// Took is the time from the cause to the hop.
func (h *Hop) Took() time.Duration { return max(0, h.At.Sub(h.Begin)) }

// Build makes the tree of an answer. The roots are those Records whose causes are not in the
// answer. facts may be nil.
func Build(answer causes.Answer, facts *Facts) *Tree {
	b := builder{records: map[int64]*causes.Record{}, objects: map[string]*Hop{}, by: map[int64]*Hop{}}
	t := &Tree{Writes: len(answer.Records), Hidden: answer.Hidden, Truncated: answer.Truncated}
	for i := range answer.Records {
		b.records[answer.Records[i].Revision] = &answer.Records[i]
	}
	for i := range answer.Records {
		b.add(t, &answer.Records[i], facts)
	}
	if len(answer.Records) == 0 {
		return t
	}
	for uid, hop := range b.objects {
		facts.addSteps(uid, hop)
	}
	facts.addRules(&b)
	if facts != nil && len(facts.Silent) > 0 {
		t.Silent = facts.Silent
	}
	t.Began = answer.Records[0].Time
	end := t.Began
	t.walk(func(_ int, h *Hop) {
		slices.SortStableFunc(h.Hops, func(a, b *Hop) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Revision, b.Revision)) })
		for _, at := range []time.Time{h.At, h.Last} {
			if at.After(end) {
				end = at
			}
		}
	})
	t.Took = end.Sub(t.Began)
	return t
}

// walk calls fn for each hop, parents first, with its depth.
func (t *Tree) walk(fn func(depth int, h *Hop)) {
	var below func(depth int, list []*Hop)
	below = func(depth int, list []*Hop) {
		for _, h := range list {
			fn(depth, h)
			below(depth+1, h.Hops)
		}
	}
	below(0, t.Hops)
}

type builder struct {
	records map[int64]*causes.Record
	objects map[string]*Hop // the first hop of each object
	by      map[int64]*Hop  // the hop of each revision
}

// identity names an object apart from a later one of the same name.
func identity(r *causes.Record) string {
	if r.UID != "" {
		return r.UID
	}
	return fmt.Sprint(r.Object)
}

// add puts a Record into the tree: the first one of an object below its cause, the others below the
// first one.
func (b *builder) add(t *Tree, r *causes.Record, facts *Facts) {
	h := &Hop{
		Object: r.Object, What: what(r, facts), Maker: Maker(r), Actor: r.Actor, Revision: r.Revision, Times: 1,
		Because: slices.Clone(r.Because.All()), Inferred: r.Inferred, Request: r.Request, Note: r.Note, Trace: r.Trace, Source: FromLog, Begin: r.Time, At: r.Time,
	}
	cause := b.cause(r)
	if cause != nil {
		h.Begin = cause.Time
	}
	b.by[r.Revision] = h
	first := b.objects[identity(r)]
	switch {
	case first != nil:
		if n := len(first.Hops); n > 0 && sameStep(first.Hops[n-1], h) {
			last := first.Hops[n-1]
			last.Times++
			last.Others = append(last.Others, r.Revision)
			last.Last = h.At
			b.by[r.Revision] = last
			return
		}
		first.Hops = append(first.Hops, h)
		return
	case cause != nil:
		parent := b.objects[identity(cause)]
		parent.Hops = append(parent.Hops, h)
	default:
		t.Hops = append(t.Hops, h)
	}
	b.objects[identity(r)] = h
}

// sameStep reports whether two hops in a row of an object are shown as one.
func sameStep(a, b *Hop) bool {
	return a.Object == b.Object && a.What == b.What && a.Maker == b.Maker && a.What == whatStatus
}

// cause returns the newest of the causes that are in the tree.
func (b *builder) cause(r *causes.Record) (newest *causes.Record) {
	for _, revision := range r.Because.All() {
		c := b.records[revision]
		if c != nil && b.by[revision] != nil && (newest == nil || c.Revision > newest.Revision) {
			newest = c
		}
	}
	return newest
}

const whatStatus = "status"

// what says what a write did.
func what(r *causes.Record, facts *Facts) string {
	switch {
	case r.Effect == causes.Created && r.Verb == "apply":
		return "applied (created)"
	case r.Effect == causes.Created:
		return "created"
	case r.Effect == causes.Removed:
		return "removed"
	case r.Effect == causes.Deleting:
		return "deletion begun"
	case r.Subresource == "binding":
		if node := facts.nodeOf(r.UID); node != "" {
			return "bound to " + node
		}
		return "bound"
	case r.Subresource == "scale":
		return "scaled"
	case r.Subresource != "":
		return r.Subresource
	case r.Verb == "apply":
		return "applied"
	}
	return "changed"
}

// Maker names the writer shortly: a component without its prefix, or a user with the field manager.
func Maker(r *causes.Record) string {
	for _, prefix := range []string{"system:serviceaccount:kube-system:", "system:"} {
		if rest, ok := strings.CutPrefix(r.Actor, prefix); ok && rest != "" {
			return rest
		}
	}
	if r.Manager != "" && r.Manager != r.Actor {
		return r.Actor + " (" + r.Manager + ")"
	}
	return r.Actor
}
