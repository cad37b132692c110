package cache

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/store"
)

// churn creates, changes and deletes n pods, and returns the revision before.
func churn(t *testing.T, s store.Store, k *Kind, n int) (before int64) {
	t.Helper()
	before = k.Revision()
	last := before
	for i := range n {
		p := pod("a", fmt.Sprintf("pod-%04d", i), "", map[string]string{"app": "packed", "odd": fmt.Sprint(i % 2)})
		p.UID = types.UID("uid-of-" + p.Name)
		p.Annotations = map[string]string{"what": strings.Repeat("x", 500), "which": fmt.Sprint(i)}
		write(t, s, pods, p)
		p.Spec.NodeName = fmt.Sprintf("node-%d", i%3)
		last = write(t, s, pods, p)
		if i%2 == 0 {
			last = remove(t, s, pods, "a", p.Name)
		}
	}
	wait(t, k, last)
	return before
}

func packedEvents(k *Kind) (packed int) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for n := k.log.first; n < k.log.next; n++ {
		if e := k.log.at(n); e.old != nil && e.old.packed != nil {
			packed++
		}
	}
	return packed
}

func TestPackedStatesAreDeliveredUnchanged(t *testing.T) {
	s := openStore(t)
	k := openKind(t, openCache(t, s), pods)
	const n = 400
	before := churn(t, s, k, n)
	if packed := packedEvents(k); packed < n/2 {
		t.Fatalf("%d states are packed", packed)
	}
	for name, c := range map[string]struct {
		interest                Interest
		added, changed, removed int
	}{
		"everything":       {Interest{}, n, n, n / 2},
		"a label":          {Interest{Labels: labels.SelectorFromSet(labels.Set{"odd": "1"})}, n / 2, n / 2, 0},
		"a node":           {Interest{Fields: fields.OneTermEqualSelector("spec.nodeName", "node-0")}, 134, 0, 67},
		"pods without one": {Interest{Fields: fields.OneTermEqualSelector("spec.nodeName", "")}, n, 0, n},
	} {
		t.Run(name, func(t *testing.T) {
			cursor, err := k.Watch(before, c.interest)
			if err != nil {
				t.Fatal(err)
			}
			defer cursor.Close()
			var told [3]int
			for {
				changes, _, err := cursor.Poll()
				if err != nil {
					t.Fatal(err)
				}
				if len(changes) == 0 {
					break
				}
				for _, ch := range changes {
					told[ch.Type]++
					checkState(t, ch.Entry)
					if ch.Old != nil {
						checkState(t, ch.Old)
					}
				}
			}
			if want := [3]int{c.added, c.changed, c.removed}; told != want {
				t.Errorf("added, modified, deleted: %v, want %v", told, want)
			}
		})
	}
}

// checkState compares an entry's header with its object.
func checkState(t *testing.T, e *Entry) {
	t.Helper()
	obj, err := e.Object()
	if err != nil {
		t.Fatal(err)
	}
	p := obj.(*corev1.Pod)
	got := fmt.Sprint(p.Namespace, p.Name, p.UID, labels.Set(p.Labels), p.Spec.NodeName, p.ResourceVersion, p.Namespace+"/"+p.Name)
	want := fmt.Sprint(e.Namespace, e.Name, e.UID, labels.Set(e.Labels.Map()), e.Fields.Get("spec.nodeName"), e.Revision, strings.TrimPrefix(e.Key, pods+"/"))
	if got != want {
		t.Errorf("the object says %s, the header %s", got, want)
	}
	if "pod-"+fmt.Sprintf("%04s", p.Annotations["which"]) != p.Name {
		t.Errorf("%s has the bytes of pod %s", p.Name, p.Annotations["which"])
	}
}

func TestAnOldSnapshotHasPackedStates(t *testing.T) {
	s := openStore(t)
	k := openKind(t, openCache(t, s), pods)
	p := pod("a", "pod-0000", "", map[string]string{"app": "packed"})
	p.Annotations = map[string]string{"which": "0"}
	at := write(t, s, pods, p)
	churn(t, s, k, 400)
	snap, err := k.At(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	e, ok := snap.Get(pods + "/a/pod-0000")
	if !ok || snap.Len() != 1 || e.packed == nil {
		t.Fatalf("there: %v, packed: %v, of %d", ok, ok && e.packed != nil, snap.Len())
	}
	checkState(t, e)
}

func TestAPackedStateTakesAFractionOfItsBytes(t *testing.T) {
	s := openStore(t)
	k := openKind(t, openCache(t, s), pods)
	churn(t, s, k, 400)
	k.mu.RLock()
	defer k.mu.RUnlock()
	packs, stored, compressed := map[*pack]bool{}, 0, 0
	for n := k.log.first; n < k.log.next; n++ {
		if e := k.log.at(n); e.old != nil && e.old.packed != nil {
			stored += e.old.packed.to - e.old.packed.from
			if p := e.old.packed.pack; !packs[p] {
				packs[p] = true
				compressed += len(p.compressed)
			}
		}
	}
	if compressed == 0 || compressed > stored/8 {
		t.Errorf("%d bytes are packed into %d", stored, compressed)
	}
}

func TestIncompressibleStatesCountInFull(t *testing.T) {
	s := openStore(t)
	k := openKind(t, openCache(t, s), pods)
	noise := make([]byte, 3*hotBytes/200)
	for range 200 {
		p := pod("a", "noise", "", nil)
		_, _ = rand.Read(noise)
		p.Annotations = map[string]string{"noise": base64.StdEncoding.EncodeToString(noise)}
		wait(t, k, write(t, s, pods, p))
	}
	if packedEvents(k) == 0 {
		t.Fatal("nothing is packed")
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if least := 199 * len(noise); k.log.bytes < least {
		t.Errorf("the log counts %d bytes, and there are %d at least", k.log.bytes, least)
	}
}

func TestTheLogCountsItsBytes(t *testing.T) {
	s := openStore(t)
	k := openKind(t, openCache(t, s), pods)
	check := func(when string) {
		t.Helper()
		k.mu.RLock()
		defer k.mu.RUnlock()
		var all, pending, hot int
		for n := k.log.first; n < k.log.next; n++ {
			e := k.log.at(n)
			all += held(e)
			switch {
			case n >= k.log.hot:
				hot += e.oldBytes()
			case n >= k.log.packed:
				pending += e.oldBytes()
			case e.oldBytes() > 0:
				t.Errorf("%s: event %d is before %d and not packed", when, n, k.log.packed)
			}
		}
		if got, want := [3]int{k.log.bytes, k.log.pending, k.log.hotBytes}, [3]int{all, pending, hot}; got != want {
			t.Errorf("%s: it counts in all, to be packed, hot: %v, it has %v", when, got, want)
		}
		if hot > hotBytes {
			t.Errorf("%s: %d bytes are hot", when, hot)
		}
	}
	drop := func(until func(*eventLog) uint64) {
		k.mu.Lock()
		defer k.mu.Unlock()
		for end := until(&k.log); k.log.first < end; {
			k.log.drop()
		}
	}
	churn(t, s, k, 400)
	check("after some changes")
	drop(func(l *eventLog) uint64 { return l.first + 10 })
	check("packed ones have gone")
	drop(func(l *eventLog) uint64 { return l.packed + 1 })
	check("one to be packed has gone")
	drop(func(l *eventLog) uint64 { return l.hot + 10 })
	check("hot ones have gone")
	p := pod("a", "large", "", nil)
	for i := range 6 {
		p.Annotations = map[string]string{"what": strings.Repeat(fmt.Sprint(i), hotBytes/4)}
		wait(t, k, write(t, s, pods, p))
	}
	check("large ones have come")
	wait(t, k, write(t, s, pods, pod("a", "small", "", nil)))
	check("a small one has come")
}
