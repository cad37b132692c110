package cache

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
)

// model is the whole history: the content at each revision.
type model struct {
	at   map[int64]map[string]*corev1.Pod
	last int64
}

func (m *model) apply(rev int64, change func(map[string]*corev1.Pod)) {
	next := maps.Clone(m.at[m.last])
	if next == nil {
		next = map[string]*corev1.Pod{}
	}
	change(next)
	m.at[rev], m.last = next, rev
}

// show renders the pods of interest as text, for comparison.
func show(ps map[string]*corev1.Pod, i Interest) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(ps)) {
		p := ps[key]
		e := Entry{Header: podSchema("").Header(p)}
		if i.Matches(&e) {
			out = append(out, fmt.Sprint(p.Namespace, "/", p.Name, " ", p.Spec.NodeName, " ", p.Labels))
		}
	}
	return strings.Join(out, "; ")
}

func showSnapshot(s *Snapshot, i Interest) string {
	ps := map[string]*corev1.Pod{}
	s.Ascend("", "", func(e *Entry) bool {
		o, _ := e.Object()
		ps[e.Key] = o.(*corev1.Pod)
		return true
	})
	return show(ps, i)
}

// TestTheCacheAgreesWithASimpleModel makes random changes and watches, and compares the cache with
// the history. It checks each revision's snapshot and indexes, and that a cursor's changes, applied
// to the initial snapshot, give the right content.
func TestTheCacheAgreesWithASimpleModel(t *testing.T) {
	s := openStore(t)
	c := openCache(t, s)
	runs := 0
	rapid.Check(t, func(r *rapid.T) {
		runs++
		prefix := fmt.Sprintf("/registry/run%d", runs)
		m := &model{at: map[int64]map[string]*corev1.Pod{}}
		m.last, _ = s.Revision(t.Context())
		m.at[m.last] = map[string]*corev1.Pod{}
		var k *Kind
		var watches []*follower
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			switch rapid.IntRange(0, 9).Draw(r, "what") {
			case 0:
				if k == nil {
					k = openKind(t, c, prefix)
					k.AddIndex("node", func(o runtime.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} })
				}
			case 1, 2:
				if k != nil {
					watches = append(watches, follow(t, k, m, genInterest(r)))
				}
			case 3:
				for _, f := range watches {
					f.drain(t)
				}
			case 4, 5:
				ns, name := genName(r)
				key := prefix + "/" + ns + "/" + name
				if _, ok := m.at[m.last][key]; ok {
					m.apply(remove(t, s, prefix, ns, name), func(ps map[string]*corev1.Pod) { delete(ps, key) })
				}
			default:
				ns, name := genName(r)
				p := pod(ns, name, rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(r, "node"),
					map[string]string{"c": rapid.SampledFrom([]string{"red", "blue"}).Draw(r, "colour")})
				m.apply(write(t, s, prefix, p), func(ps map[string]*corev1.Pod) { ps[keyOf(prefix, p)] = p })
			}
		}
		if k == nil {
			k = openKind(t, c, prefix)
		}
		check(t, r, k, m, watches)
		c.Forget(prefix)
	})
}

func check(t *testing.T, r *rapid.T, k *Kind, m *model, watches []*follower) {
	snap := wait(t, k, m.last)
	if got, want := showSnapshot(snap, Interest{}), show(m.at[m.last], Interest{}); got != want {
		r.Fatalf("now:\n%s\nwant\n%s", got, want)
	}
	for rev, ps := range m.at {
		old, err := k.At(patient(t), rev)
		if err != nil {
			r.Fatalf("at %d: %v", rev, err)
		}
		if got, want := showSnapshot(old, Interest{}), show(ps, Interest{}); got != want {
			r.Fatalf("at %d:\n%s\nwant\n%s", rev, got, want)
		}
	}
	for _, node := range []string{"", "n1", "n2"} {
		ps := map[string]*corev1.Pod{}
		if snap.ByIndex("node", node, func(e *Entry) bool {
			o, _ := e.Object()
			ps[e.Key] = o.(*corev1.Pod)
			return true
		}) {
			want := show(m.at[m.last], Interest{Fields: fields.OneTermEqualSelector("spec.nodeName", node)})
			if got := show(ps, Interest{}); got != want {
				r.Fatalf("index of node %q:\n%s\nwant\n%s", node, got, want)
			}
		}
	}
	for _, f := range watches {
		f.drain(t)
		if got, want := show(f.picture, Interest{}), show(m.at[m.last], f.interest); got != want {
			r.Fatalf("a watcher of %+v from %d on has\n%s\nwant\n%s", f.interest, f.from, got, want)
		}
		if f.wrong != "" {
			r.Fatal(f.wrong)
		}
		f.cursor.Close()
	}
	if k.cursors.n != 0 || len(k.cursors.topics) != 0 {
		r.Fatalf("cursors left: %+v", k.cursors)
	}
}

func genName(r *rapid.T) (string, string) {
	return rapid.SampledFrom([]string{"a", "b"}).Draw(r, "namespace"), rapid.SampledFrom([]string{"1", "2", "3"}).Draw(r, "name")
}

func genInterest(r *rapid.T) Interest {
	i := Interest{
		Namespace: rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(r, "in"),
		Name:      rapid.SampledFrom([]string{"", "", "", "1"}).Draw(r, "named"),
	}
	if s := rapid.SampledFrom([]string{"", "c=red", "c!=red"}).Draw(r, "labels"); s != "" {
		i.Labels, _ = labels.Parse(s)
	}
	if s := rapid.SampledFrom([]string{"", "", "spec.nodeName=n1", "spec.nodeName=", "spec.nodeName!=n2,metadata.name=2"}).Draw(r, "fields"); s != "" {
		i.Fields = fields.ParseSelectorOrDie(s)
	}
	return i
}

// follower is a watcher that applies its changes to a copy of the content.
type follower struct {
	cursor   *Cursor
	interest Interest
	from     int64
	reached  int64
	picture  map[string]*corev1.Pod
	wrong    string
}

// follow starts at a snapshot, as list and watch do.
func follow(t *testing.T, k *Kind, m *model, i Interest) *follower {
	snap := k.Snapshot()
	f := &follower{interest: i, from: snap.Revision(), picture: map[string]*corev1.Pod{}}
	n := i.normal()
	snap.Ascend("", "", func(e *Entry) bool {
		if n.Matches(e) {
			o, _ := e.Object()
			f.picture[e.Key] = o.(*corev1.Pod)
		}
		return true
	})
	var err error
	if f.cursor, err = k.Watch(f.from, i); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *follower) drain(t *testing.T) {
	for {
		changes, reached, err := f.cursor.Poll()
		if err != nil {
			t.Fatal(err)
		}
		if reached < f.reached {
			f.wrong = fmt.Sprintf("progress went back from %d to %d", f.reached, reached)
		}
		if len(changes) == 0 {
			f.reached = reached
			return
		}
		for _, c := range changes {
			if c.Revision <= f.reached {
				f.wrong = fmt.Sprintf("a change of %d came after progress %d", c.Revision, f.reached)
			}
			_, had := f.picture[c.Entry.Key]
			if had != (c.Type != Added) || (c.Old != nil) != (c.Type != Added) {
				f.wrong = fmt.Sprintf("change type %d of %s although it was known: %v (old: %v)", c.Type, c.Entry.Key, had, c.Old != nil)
			}
			if c.Type == Deleted {
				delete(f.picture, c.Entry.Key)
				continue
			}
			o, _ := c.Entry.Object()
			f.picture[c.Entry.Key] = o.(*corev1.Pod)
		}
		f.reached = reached
	}
}
