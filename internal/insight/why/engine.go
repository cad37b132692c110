package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
)

const (
	// maxRounds bounds how often the rules run: a chain of causes is never as long.
	maxRounds = 20
	// maxDepth bounds a chain of causes.
	maxDepth = 12
	// maxLinks is the number of links of a finding that are followed.
	maxLinks = 50
	// maxSweptKinds is the number of custom kinds that a question about a namespace or the cluster
	// examines.
	maxSweptKinds = 100
)

// Question asks about one object, or about everything in a namespace or the cluster.
type Question struct {
	// Subject is the object. A nil Subject asks about Namespace, or about the cluster if that is
	// empty.
	Subject   *Ref
	Namespace string
	// Ask answers another question over the same Snapshot, such as one about permissions.
	Ask func(*Snapshot) []Finding
}

// Reader reads what rules need.
type Reader interface {
	// read returns a reply for each need, in order. Failures are in the replies.
	read(ctx context.Context, needs []need) []*reply
}

// ErrNoSubject means that the object of a question does not exist.
var ErrNoSubject = errors.New("not found")

// Explain answers a question with the caller's rights.
func Explain(ctx context.Context, r Reader, q Question, now time.Time) (*Answer, error) {
	s := newSnapshot(now)
	for range maxRounds {
		clear(s.missing)
		clear(s.failed)
		answer, err := Evaluate(s, q)
		if len(s.missing) == 0 {
			return answer, cmp.Or(err, unreadable(s, answer))
		}
		needs := make([]need, 0, len(s.missing))
		for n := range s.missing {
			needs = append(needs, n)
		}
		slices.SortFunc(needs, func(a, b need) int { return cmp.Compare(a.String(), b.String()) })
		for i, reply := range r.read(ctx, needs) {
			s.replies[needs[i]] = reply
		}
		s.scheduling, s.owners = nil, nil
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the rules still ask for more after %d rounds", maxRounds)
}

// unreadable returns an error if nothing could be read: an answer would mean nothing.
func unreadable(s *Snapshot, a *Answer) error {
	if a == nil || a.Looked > 0 || len(a.Findings) > 0 || len(s.failed) == 0 {
		return nil
	}
	failed := slices.MinFunc(slices.Collect(maps.Keys(s.failed)), func(a, b need) int { return cmp.Compare(a.String(), b.String()) })
	return fmt.Errorf("cannot read %s: %w", failed, s.replies[failed].err)
}

// Evaluate answers a question from a Snapshot alone.
func Evaluate(s *Snapshot, q Question) (*Answer, error) {
	e := &engine{s: s, known: map[Ref][]*Finding{}, open: map[Ref]bool{}}
	a := &Answer{Subject: q.Subject, Roots: []Root{}, Findings: []*Finding{}}
	switch {
	case q.Ask != nil:
		a.denial = true
		for _, f := range q.Ask(s) {
			a.Findings = append(a.Findings, e.finish(f, 0))
		}
	case q.Subject != nil:
		found, presence := e.explain(*q.Subject, 0)
		if presence == Found && q.Subject.Kind == "Namespace" && len(found) == 0 {
			for _, ref := range e.subjects(q.Subject.Name) {
				inside, _ := e.explain(ref, 0)
				found = append(found, inside...)
			}
		}
		if presence == Absent {
			return nil, fmt.Errorf("%s: %w%s", q.Subject, ErrNoSubject, inNamespace(q.Subject.Namespace))
		}
		a.Findings = append(a.Findings, found...)
	default:
		a.Scope = q.Namespace
		for _, ref := range e.subjects(q.Namespace) {
			found, _ := e.explain(ref, 0)
			a.Findings = append(a.Findings, found...)
		}
	}
	a.Roots = roots(a.Findings)
	a.Looked = len(e.known)
	for n := range s.failed {
		a.Unread = append(a.Unread, fmt.Sprintf("cannot read %s: %s", n, clean(s.replies[n].err.Error(), 300)))
	}
	slices.Sort(a.Unread)
	return a, nil
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// engine applies the rules and follows links. Results are kept by object.
type engine struct {
	s     *Snapshot
	known map[Ref][]*Finding
	open  map[Ref]bool // objects on the path of the chain at hand
}

// explain returns the findings on an object. An object on the chain at hand has none: this ends
// cycles.
func (e *engine) explain(ref Ref, depth int) ([]*Finding, Presence) {
	if found, ok := e.known[ref]; ok {
		return found, Found
	}
	if e.open[ref] || depth > maxDepth {
		return nil, Found
	}
	resource, presence := e.s.resource(ref.Kind)
	if presence != Found {
		return nil, Unknown
	}
	object, presence := e.s.lookup(resource, ref.Namespace, ref.Name)
	switch presence {
	case Unknown:
		f, ok := unconverted(e.s, resource, ref)
		if !ok {
			return nil, Unknown
		}
		return []*Finding{e.finish(f, depth)}, Found
	case Absent:
		if depth == 0 {
			return nil, Absent
		}
		f := absent(e.s, ref)
		return []*Finding{&f}, Absent
	}
	e.open[ref] = true
	var out []*Finding
	for _, rule := range rulesFor(resource) {
		for _, f := range rule.Find(e.s, object) {
			if f.Subject == (Ref{}) {
				f.Subject = ref
			}
			if done := e.finish(f, depth); !f.onlyLinked || len(done.Because) > 0 {
				out = append(out, done)
			}
		}
	}
	delete(e.open, ref)
	e.known[ref] = out
	return out, Found
}

// finish follows a finding's links.
func (e *engine) finish(f Finding, depth int) *Finding {
	f.Problem, f.Remedy = clean(f.Problem, maxText), clean(f.Remedy, maxText)
	for i := range f.Evidence {
		f.Evidence[i].Text = clean(f.Evidence[i].Text, maxLogBytes)
	}
	links := f.links[:min(len(f.links), maxLinks)]
	for _, link := range links {
		found, _ := e.explain(link.Object, depth+1)
		for _, b := range found {
			if len(link.Only) == 0 || slices.Contains(link.Only, b.Cause) {
				f.Because = append(f.Because, b)
			}
		}
	}
	if f.Root = len(f.Because) == 0; f.Root && f.Remedy == "" {
		f.Remedy = generalRemedy(f.Cause)
	}
	return &f
}

// subjects lists the objects that a question about a namespace or the cluster examines.
func (e *engine) subjects(namespace string) []Ref {
	e.s.listEvents(namespace)
	var out []Ref
	for _, gr := range sweep {
		kind, ok := api.ByResource(gr)
		if !ok || !kind.Namespaced && namespace != "" {
			continue
		}
		for _, o := range e.s.objects(gr, namespace) {
			out = append(out, refTo(o))
		}
	}
	kinds, _ := e.s.customKinds()
	for _, k := range kinds[:min(len(kinds), maxSweptKinds)] {
		if !k.namespaced && namespace != "" {
			continue
		}
		for _, o := range e.s.objects(k.resource, namespace) {
			out = append(out, refTo(o))
		}
	}
	return out
}

// objects lists the objects of a resource.
func (s *Snapshot) objects(gr schema.GroupResource, namespace string) []runtime.Object {
	r := s.listed(gr, namespace)
	if r == nil {
		r = s.ask(need{what: "objects", resource: gr, namespace: namespace})
	} else if r.err != nil {
		s.failed[need{what: "objects", resource: gr, namespace: namespace}] = true
	}
	if r == nil {
		return nil
	}
	var out []runtime.Object
	for _, o := range r.objects {
		if namespace == "" || metaOf(o).GetNamespace() == namespace {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b runtime.Object) int { return compareRefs(refTo(a), refTo(b)) })
	return out
}

// listEvents reads all events at once, for questions about many objects.
func (s *Snapshot) listEvents(namespace string) { s.objects(eventsResource, namespace) }
