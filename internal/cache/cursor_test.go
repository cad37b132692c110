package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/store"
)

func TestACursorDeliversTheChangesOfItsInterest(t *testing.T) {
	blue, red := map[string]string{"c": "blue"}, map[string]string{"c": "red"}
	selector := func(s string) labels.Selector {
		sel, err := labels.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return sel
	}
	field := func(s string) fields.Selector { return fields.ParseSelectorOrDie(s) }
	tests := []struct {
		name     string
		interest Interest
		want     string
	}{
		{"everything", Interest{}, "A a/1, M a/1, A b/2, M a/1, D b/2, D a/1"},
		{"everything, as selectors", Everything, "A a/1, M a/1, A b/2, M a/1, D b/2, D a/1"},
		{"one namespace", Interest{Namespace: "a"}, "A a/1, M a/1, M a/1, D a/1"},
		{"one object", Interest{Namespace: "b", Name: "2"}, "A b/2, D b/2"},
		{"one name in all namespaces", Interest{Name: "2"}, "A b/2, D b/2"},
		{"one name by a field", Interest{Fields: field("metadata.name=2")}, "A b/2, D b/2"},
		{"labels that stop and start to match", Interest{Labels: selector("c=blue")}, "A a/1, D a/1, A b/2, A a/1, D b/2, D a/1"},
		{"the labels that it has in between", Interest{Labels: selector("c=red")}, "A a/1, D a/1"},
		{"one node's", Interest{Fields: field("spec.nodeName=n1")}, "A a/1, M a/1, D a/1"},
		{"those without a node", Interest{Fields: field("spec.nodeName=")}, "A a/1, D a/1, A b/2, D b/2"},
		{"all that are not on a node", Interest{Fields: field("spec.nodeName!=n1")}, "A a/1, D a/1, A b/2, D b/2"},
		{"nothing", Interest{Namespace: "z"}, ""},
	}
	s := openStore(t)
	start := write(t, s, pods, pod("z", "start", "", nil))
	k := openKind(t, openCache(t, s), pods)
	open := func(i Interest) *Cursor {
		c, err := k.Watch(start, i)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	early := make([]*Cursor, len(tests))
	for i, tt := range tests {
		if tt.want != "" {
			early[i] = open(tt.interest)
		}
	}
	write(t, s, pods, pod("a", "1", "", blue))
	write(t, s, pods, pod("a", "1", "n1", red))
	write(t, s, pods, pod("b", "2", "", blue))
	write(t, s, pods, pod("a", "1", "n1", blue))
	remove(t, s, pods, "b", "2")
	last := remove(t, s, pods, "a", "1")
	wait(t, k, last)
	for i, tt := range tests {
		if tt.want == "" {
			continue
		}
		for when, c := range map[string]*Cursor{"opened before": early[i], "opened after": open(tt.interest)} {
			t.Run(tt.name+", "+when, func(t *testing.T) {
				defer c.Close()
				var got []string
				for {
					changes, reached, err := c.Poll()
					if err != nil {
						t.Fatal(err)
					}
					if len(changes) == 0 {
						if reached < last {
							t.Errorf("progress %d after everything was read, want at least %d", reached, last)
						}
						break
					}
					for _, ch := range changes {
						got = append(got, fmt.Sprintf("%c %s/%s", "AMD"[ch.Type], ch.Entry.Namespace, ch.Entry.Name))
						if ch.Entry.Revision != ch.Revision {
							t.Errorf("an entry of revision %d in a change of %d", ch.Entry.Revision, ch.Revision)
						}
						obj, err := ch.Entry.Object()
						if err != nil || obj.(*corev1.Pod).ResourceVersion != fmt.Sprint(ch.Revision) {
							t.Errorf("the object says resourceVersion %s in a change of %d (%v)", obj.(*corev1.Pod).ResourceVersion, ch.Revision, err)
						}
					}
				}
				if strings.Join(got, ", ") != tt.want {
					t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), tt.want)
				}
			})
		}
	}
	if k.cursors.n != 0 || len(k.cursors.topics) != 0 || len(k.cursors.fields) != 0 {
		t.Errorf("left behind: %+v", k.cursors)
	}
}

func TestNextWaitsForChangesAndReportsProgress(t *testing.T) {
	s := openStore(t)
	k := openKind(t, openCache(t, s), pods)
	c, err := k.Watch(k.Revision(), Interest{Namespace: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make(chan int64, 1)
	go func() {
		changes, _, err := c.Next(patient(t))
		if err != nil || len(changes) != 1 {
			t.Error(changes, err)
			got <- 0
			return
		}
		got <- changes[0].Revision
	}()
	time.Sleep(10 * time.Millisecond)
	write(t, s, pods, pod("b", "other", "", nil))
	rev := write(t, s, pods, pod("a", "one", "", nil))
	if r := <-got; r != rev {
		t.Errorf("got a change of %d, want %d", r, rev)
	}
	other := write(t, s, pods, pod("b", "other", "", nil))
	wait(t, k, other)
	brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	changes, reached, err := c.Next(brief)
	if err != nil || len(changes) != 0 || reached < other {
		t.Errorf("got %v, progress %d, %v; want none, at least %d, nil", changes, reached, err, other)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := c.Next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestASlowWatcherFallsOffTheLog(t *testing.T) {
	s := openStore(t)
	k := openKind(t, openCache(t, s), pods)
	start := k.Revision()
	slow, err := k.Watch(start, Interest{})
	if err != nil {
		t.Fatal(err)
	}
	narrow, err := k.Watch(start, Interest{Namespace: "quiet"})
	if err != nil {
		t.Fatal(err)
	}
	// Let the time pass, so that the log keeps only its minimum.
	last := write(t, s, pods, pod("a", "p", "", nil))
	wait(t, k, last)
	k.mu.Lock()
	for i := range 2 * minEvents {
		k.log.append(&event{revision: last + int64(i), old: &Entry{}, new: &Entry{}, at: time.Now().Add(time.Duration(i) * time.Hour)})
	}
	k.mu.Unlock()
	if _, _, err := slow.Poll(); !errors.Is(err, ErrTooOld) {
		t.Errorf("the slow watcher got %v", err)
	}
	if _, _, err := narrow.Poll(); err != nil {
		t.Errorf("a watcher that missed nothing it wants got %v", err)
	}
	if _, err := k.Watch(start, Interest{}); !errors.Is(err, ErrTooOld) {
		t.Errorf("watching from a dropped revision: %v", err)
	}
}

// openCursor opens a cursor on new changes of a kind; the caller closes it.
func openCursor(t *testing.T) (store.Store, *Cache, *Kind, *Cursor) {
	t.Helper()
	s := openStore(t)
	c := openCache(t, s)
	k := openKind(t, c, pods)
	cur, err := k.Watch(k.Revision(), Interest{})
	if err != nil {
		t.Fatal(err)
	}
	return s, c, k, cur
}

func TestCursorsOfAForgottenKindDeliverEarlierChangesFirst(t *testing.T) {
	s, c, k, cur := openCursor(t)
	defer cur.Close()
	const writes = chunk + 1
	var last int64
	for i := range writes {
		last = write(t, s, pods, pod("default", fmt.Sprintf("p-%04d", i), "", nil))
	}
	if err := k.WaitFor(patient(t), last); err != nil {
		t.Fatal(err)
	}
	c.Forget(pods)
	var err error
	told := 0
	for err == nil {
		var changes []Change
		changes, _, err = cur.Next(patient(t))
		told += len(changes)
	}
	if told != writes || !errors.Is(err, ErrForgotten) {
		t.Errorf("got %d of %d changes, then %v", told, writes, err)
	}
}

func TestAForgottenKindEndsItsCursors(t *testing.T) {
	_, c, k, cur := openCursor(t)
	time.AfterFunc(10*time.Millisecond, func() { c.Forget(pods) })
	if _, _, err := cur.Next(patient(t)); !errors.Is(err, ErrTooOld) {
		t.Errorf("got %v", err)
	}
	cur.Close()
	if k2 := openKind(t, c, pods); k2 == k {
		t.Error("opening again gave the forgotten one")
	}
}
