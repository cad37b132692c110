package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// podSchema stores pods as JSON.
func podSchema(prefix string) Schema {
	return Schema{
		Prefix: prefix,
		Decode: func(stored []byte, revision int64) (runtime.Object, error) {
			p := &corev1.Pod{}
			if err := json.Unmarshal(stored, p); err != nil {
				return nil, err
			}
			p.ResourceVersion = fmt.Sprint(revision)
			return p, nil
		},
		Header: func(obj runtime.Object) Header {
			p := obj.(*corev1.Pod)
			return Header{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Labels: PairsOf(p.Labels), Fields: PairsOf(fields.Set{
				"spec.nodeName": p.Spec.NodeName,
			})}
		},
	}
}

func pod(namespace, name, node string, lbls map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: lbls},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

func keyOf(prefix string, p *corev1.Pod) string { return prefix + "/" + p.Namespace + "/" + p.Name }

func openStore(t testing.TB) store.Store {
	t.Helper()
	s, err := etcd.Open(context.Background(), etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openCache(t testing.TB, s store.Store) *Cache {
	t.Helper()
	c := New(s)
	t.Cleanup(c.Close)
	return c
}

func openKind(t testing.TB, c *Cache, prefix string) *Kind {
	t.Helper()
	k, err := c.Kind(podSchema(prefix))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func write(t testing.TB, s store.Store, prefix string, p *corev1.Pod) int64 {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Commit(context.Background(), nil, store.Op{Key: keyOf(prefix, p), Value: b})
	if err != nil {
		t.Fatal(err)
	}
	return r.Revision
}

func remove(t testing.TB, s store.Store, prefix, namespace, name string) int64 {
	t.Helper()
	r, err := s.Commit(context.Background(), nil, store.Op{Key: prefix + "/" + namespace + "/" + name, Delete: true})
	if err != nil {
		t.Fatal(err)
	}
	return r.Revision
}

// patient returns a context with a timeout for steps that take no time.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func wait(t testing.TB, k *Kind, revision int64) *Snapshot {
	t.Helper()
	if err := k.WaitFor(patient(t), revision); err != nil {
		t.Fatal(err)
	}
	return k.Snapshot()
}

func names(s *Snapshot, prefix, from string) string {
	var out []string
	s.Ascend(prefix, from, func(e *Entry) bool { out = append(out, e.Namespace+"/"+e.Name); return true })
	return strings.Join(out, " ")
}

const pods = "/registry/pods"

func TestAKindShowsWritesBeforeAndAfterItsOpening(t *testing.T) {
	s := openStore(t)
	write(t, s, pods, pod("a", "one", "", nil))
	k := openKind(t, openCache(t, s), pods)
	write(t, s, pods, pod("a", "two", "", nil))
	write(t, s, pods, pod("b", "three", "", nil))
	rev := remove(t, s, pods, "a", "one")
	snap := wait(t, k, rev)
	if got := names(snap, pods+"/", ""); got != "a/two b/three" {
		t.Errorf("got %q", got)
	}
	if got := names(snap, pods+"/a/", ""); got != "a/two" {
		t.Errorf("in namespace a: %q", got)
	}
	if got := names(snap, pods+"/", pods+"/a/two\x00"); got != "b/three" {
		t.Errorf("after a/two: %q", got)
	}
	if snap.Revision() < rev || snap.Len() != 2 || snap.Count(pods+"/", "") != 2 {
		t.Errorf("revision %d, len %d", snap.Revision(), snap.Len())
	}
	e, ok := snap.Get(pods + "/a/two")
	if !ok {
		t.Fatal("a/two is missing")
	}
	obj, err := e.Object()
	if err != nil || obj.(*corev1.Pod).ResourceVersion != fmt.Sprint(e.Revision) {
		t.Errorf("%+v, %v", obj, err)
	}
	if _, ok := snap.Get(pods + "/a/one"); ok {
		t.Error("a/one is still there")
	}
}

func TestAnEntryIsDecodedAndEncodedOnce(t *testing.T) {
	s := openStore(t)
	write(t, s, pods, pod("a", "one", "", nil))
	k := openKind(t, openCache(t, s), pods)
	e, _ := k.Snapshot().Get(pods + "/a/one")
	var encodes atomic.Int32
	objs := make([]runtime.Object, 8)
	var wg sync.WaitGroup
	for i := range objs {
		wg.Go(func() {
			objs[i], _ = e.Object()
			for _, format := range []string{"json", "yaml"} {
				b, err := e.Encoded(format, func(o runtime.Object) ([]byte, error) {
					encodes.Add(1)
					return []byte(format), nil
				})
				if err != nil || string(b) != format {
					t.Error(string(b), err)
				}
			}
		})
	}
	wg.Wait()
	if encodes.Load() != 2 {
		t.Errorf("encoded %d times, want once per format", encodes.Load())
	}
	for _, o := range objs {
		if o != objs[0] {
			t.Error("two readers got different objects")
		}
	}
}

func TestAPassingEncodingIsSharedByConcurrentReaders(t *testing.T) {
	s := openStore(t)
	write(t, s, pods, pod("a", "one", "", nil))
	e, _ := openKind(t, openCache(t, s), pods).Snapshot().Get(pods + "/a/one")
	made := 0
	encode := func() ([]byte, error) { made++; return []byte(fmt.Sprint("frame ", made)), nil }
	if _, err := e.Passing("frame", func() ([]byte, error) { return nil, io.ErrUnexpectedEOF }); err == nil {
		t.Error("the encoder's error is lost")
	}
	first, err := e.Passing("frame", encode)
	if err != nil {
		t.Fatal(err)
	}
	// A garbage collection between the two calls drops the encoding. Only then is it made again.
	if second, err := e.Passing("frame", encode); err != nil || made == 1 && &second[0] != &first[0] {
		t.Errorf("%q and %q, %v: a copy", first, second, err)
	}
	goruntime.GC()
	goruntime.GC()
	if _, err := e.Passing("frame", encode); err != nil || made < 2 {
		t.Errorf("made %d times, %v: it is kept although it is no longer used", made, err)
	}
}

func TestAnUndecodableObjectIsListedWithItsError(t *testing.T) {
	s := openStore(t)
	k := openKind(t, openCache(t, s), pods)
	r, err := s.Commit(t.Context(), nil, store.Op{Key: pods + "/a/broken", Value: []byte("{")})
	if err != nil {
		t.Fatal(err)
	}
	e, ok := wait(t, k, r.Revision).Get(pods + "/a/broken")
	if !ok || e.Namespace != "a" || e.Name != "broken" {
		t.Fatalf("got %+v", e)
	}
	if _, err := e.Object(); err == nil {
		t.Error("no error")
	}
}

func TestAtShowsExactRevisions(t *testing.T) {
	s := openStore(t)
	one := write(t, s, pods, pod("a", "1", "", nil))
	two := write(t, s, pods, pod("a", "2", "", nil))
	k := openKind(t, openCache(t, s), pods) // revisions before the opening must come from the store
	three := write(t, s, pods, pod("a", "3", "", nil))
	four := remove(t, s, pods, "a", "1")
	five := write(t, s, pods, pod("a", "2", "n", nil))
	want := map[int64]string{one: "a/1", two: "a/1 a/2", three: "a/1 a/2 a/3", four: "a/2 a/3", five: "a/2 a/3"}
	for range 2 {
		for rev, names1 := range want {
			snap, err := k.At(patient(t), rev)
			if err != nil || snap.Revision() != rev || names(snap, pods+"/", "") != names1 {
				t.Errorf("at %d: %q, revision %d, %v; want %q", rev, names(snap, pods+"/", ""), snap.Revision(), err, names1)
			}
		}
	}
	if snap, _ := k.At(patient(t), four); snap != nil {
		if e, _ := snap.Get(pods + "/a/2"); e.Revision != two {
			t.Errorf("a/2 at %d has revision %d, want %d", four, e.Revision, two)
		}
	}
	if err := s.Compact(t.Context(), three); err != nil {
		t.Fatal(err)
	}
	if _, err := k.At(patient(t), one-1); !errors.Is(err, ErrTooOld) {
		t.Errorf("compacted: %v", err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := k.At(brief, five+100); !errors.Is(err, ErrFuture) {
		t.Errorf("the future: %v", err)
	}
}

func TestCompactedRevisionsAreNotServedFromMemory(t *testing.T) {
	s := openStore(t)
	c := openCache(t, s)
	k, quiet := openKind(t, c, pods), openKind(t, c, "/registry/quiet")
	only := write(t, s, "/registry/quiet", pod("a", "1", "", nil))
	one := write(t, s, pods, pod("a", "1", "", nil))
	two := write(t, s, pods, pod("a", "2", "", nil))
	for _, rev := range []int64{one, two} {
		if _, err := k.At(patient(t), rev); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Compact(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	c.Compacted(two)
	if _, err := k.At(patient(t), one); !errors.Is(err, ErrTooOld) {
		t.Errorf("a revision in the log: %v", err)
	}
	if _, err := quiet.At(patient(t), only); !errors.Is(err, ErrTooOld) {
		t.Errorf("an old revision of a kind that has not changed since: %v", err)
	}
	if snap, err := k.At(patient(t), two); err != nil || names(snap, pods+"/", "") != "a/1 a/2" {
		t.Errorf("the oldest revision that is left: %v", err)
	}
}

func TestIndexesAreConsistentWithTheirSnapshot(t *testing.T) {
	s := openStore(t)
	write(t, s, pods, pod("a", "1", "n1", nil))
	k := openKind(t, openCache(t, s), pods)
	k.AddIndex("node", func(o runtime.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} })
	k.AddIndex("node", func(o runtime.Object) []string { panic("the first stays") })
	list := func(snap *Snapshot, v string) (out string) {
		if !snap.ByIndex("node", v, func(e *Entry) bool { out += e.Name; return true }) {
			t.Error("no such index")
		}
		return out
	}
	old := k.Snapshot()
	write(t, s, pods, pod("a", "2", "n1", nil))
	write(t, s, pods, pod("a", "1", "n2", nil))
	snap := wait(t, k, remove(t, s, pods, "a", "2"))
	if list(old, "n1") != "1" || list(old, "n2") != "" {
		t.Errorf("old: n1 %q n2 %q", list(old, "n1"), list(old, "n2"))
	}
	if list(snap, "n1") != "" || list(snap, "n2") != "1" {
		t.Errorf("new: n1 %q n2 %q", list(snap, "n1"), list(snap, "n2"))
	}
	if snap.ByIndex("other", "", nil) {
		t.Error("an index that was never added")
	}
}

func TestAWriteDoesNotCopyUnaffectedIndexes(t *testing.T) {
	s := openStore(t)
	write(t, s, pods, pod("a", "1", "n1", nil))
	k := openKind(t, openCache(t, s), pods)
	k.AddIndex("of n1", func(o runtime.Object) []string {
		if o.(*corev1.Pod).Spec.NodeName == "n1" {
			return []string{"yes"}
		}
		return nil
	})
	before := wait(t, k, write(t, s, pods, pod("a", "2", "n2", nil)))
	after := wait(t, k, remove(t, s, pods, "a", "2"))
	if before.indexes["of n1"] != after.indexes["of n1"] {
		t.Error("a pod of another node came and went, and the index was copied")
	}
	moved := wait(t, k, write(t, s, pods, pod("a", "1", "n2", nil)))
	if moved.ByIndex("of n1", "yes", func(e *Entry) bool { t.Errorf("%s is on n2", e.Name); return true }); moved.indexes["of n1"] == after.indexes["of n1"] {
		t.Error("the pod has gone, and the index is the same")
	}
}

func TestAMutatedSharedObjectIsReported(t *testing.T) {
	before := DetectMutations
	DetectMutations = true
	defer func() { DetectMutations = before }()
	s := openStore(t)
	write(t, s, pods, pod("a", "1", "", nil))
	k := openKind(t, openCache(t, s), pods)
	e, _ := k.Snapshot().Get(pods + "/a/1")
	obj, _ := e.Object()
	if found := CheckMutations(); found != "" {
		t.Errorf("found %s", found)
	}
	obj.(*corev1.Pod).Spec.NodeName = "changed"
	if found := CheckMutations(); !strings.Contains(found, pods+"/a/1") {
		t.Errorf("found %q", found)
	}
}
