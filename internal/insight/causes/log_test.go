package causes

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/insight/segments"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// write is a Record of a pod, made a millisecond per revision after start.
func write(revision int64, name string, causes ...int64) *Record {
	return &Record{
		Revision: revision, Time: start.Add(time.Duration(revision) * time.Millisecond),
		Object: Object{Resource: "pods", Namespace: "default", Name: name}, Verb: "update", Effect: Changed,
		UID: fmt.Sprintf("6f1c7bc8-8d9f-4d6c-9a39-%012x", crc32.ChecksumIEEE([]byte(name))), Actor: "system:node:n1", Manager: "kubelet", Because: because.Of(causes...),
	}
}

func open(t testing.TB, opts Options) *Log {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	l, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func flush(t testing.TB, l *Log) {
	t.Helper()
	if err := l.writer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func revisions(records []Record) (out []int64) {
	for _, r := range records {
		out = append(out, r.Revision)
	}
	return out
}

func TestClosuresFollowCausesBothWays(t *testing.T) {
	l := open(t, Options{})
	for _, r := range []*Record{
		write(10, "root"), write(11, "other"), write(13, "grandchild", 12), write(12, "child", 10, 9), write(14, "late", 11), write(15, "leaf", 13, 14),
	} {
		l.Append(r)
	}
	forward, err := l.Forward(t.Context(), []int64{10}, 0)
	if err != nil || !slices.Equal(revisions(forward), []int64{10, 12, 13, 15}) {
		t.Errorf("forward: %v, %v", revisions(forward), err)
	}
	backward, err := l.Backward(t.Context(), []int64{15}, 0)
	if err != nil || !slices.Equal(revisions(backward), []int64{10, 11, 12, 13, 14, 15}) {
		t.Errorf("backward: %v, %v", revisions(backward), err)
	}
	if few, err := l.Forward(t.Context(), []int64{10}, 2); err != nil || len(few) != 2 {
		t.Errorf("%d records of a closure bounded to 2, %v", len(few), err)
	}
}

func TestNotesAreKept(t *testing.T) {
	l := open(t, Options{})
	noted := write(11, "web", 10)
	noted.Note = "score 87, next n2 with 80"
	for _, r := range []*Record{write(10, "web"), noted, write(12, "web", 11)} {
		l.Append(r)
	}
	found, err := l.Forward(t.Context(), []int64{10}, 0)
	if err != nil || len(found) != 3 || found[1].Note != noted.Note || found[0].Note+found[2].Note != "" || found[1].Effect != Changed {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestCausesOfOutsideControllersAreInferredAndMarked(t *testing.T) {
	l := open(t, Options{})
	root := write(10, "web")
	root.UID, root.Actor, root.Request = "deployment", "kubernetes-admin", "r1"
	child := write(12, "web-1")
	child.UID, child.Owner, child.Actor = "set", "deployment", "system:serviceaccount:kube-system:deployment-controller"
	user := write(13, "web-1")
	user.UID, user.Owner, user.Actor = "set", "deployment", "kubernetes-admin"
	late := write(14, "web-2")
	late.Time = root.Time.Add(2 * Reaction)
	late.UID, late.Owner, late.Actor = "later", "deployment", child.Actor
	for _, r := range []*Record{root, child, user, late} {
		l.Append(r)
	}
	got, err := l.Forward(t.Context(), []int64{10}, 0)
	if err != nil || !slices.Equal(revisions(got), []int64{10, 12}) {
		t.Fatalf("%v, %v", revisions(got), err)
	}
	if got[0].Inferred || !got[0].Begins() || !got[1].Inferred || !got[1].Because.Has(10) {
		t.Errorf("%+v", got)
	}
}

func TestAClosureEndsAfterAPause(t *testing.T) {
	l := open(t, Options{})
	late := write(12, "late", 10)
	late.Time = start.Add(2 * Pause)
	l.Append(write(10, "root"))
	l.Append(write(11, "child", 10))
	l.Append(late)
	if got, err := l.Forward(t.Context(), []int64{10}, 0); err != nil || !slices.Equal(revisions(got), []int64{10, 11}) {
		t.Errorf("%v, %v", revisions(got), err)
	}
}

func TestRecordsAreFoundAfterARestart(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Options{Dir: dir})
	want := write(20, "web", 19)
	want.Request, want.Subresource, want.Group = "0b4f3a0e-1111-4222-8333-444455556666", "status", "apps"
	l.Append(want)
	l.Append(write(21, "db"))
	l.Close()
	l.Append(write(22, "after the end"))

	l = open(t, Options{Dir: dir})
	l.Append(write(30, "web"))
	got, err := l.OfObject(t.Context(), want.Object, 0)
	if err != nil || len(got) != 1 || got[0] != *want {
		t.Fatalf("%+v, %v", got, err)
	}
	if got, err = l.OfRequest(t.Context(), want.Request); err != nil || !slices.Equal(revisions(got), []int64{20}) {
		t.Errorf("%v, %v", revisions(got), err)
	}
	if r, ok, err := l.At(t.Context(), 21); err != nil || !ok || r.Name != "db" {
		t.Errorf("%+v %v %v", r, ok, err)
	}
	if _, ok, err := l.At(t.Context(), 22); ok || err != nil {
		t.Errorf("%v %v", ok, err)
	}
}

func TestATornEndIsCutAndTheRestIsKept(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Options{Dir: dir})
	l.Append(write(1, "a"))
	flush(t, l)
	l.Append(write(2, "b"))
	l.Close()
	path := filepath.Join(dir, "0000000000000001.causes")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-1); err != nil {
		t.Fatal(err)
	}
	l = open(t, Options{Dir: dir})
	l.Append(write(3, "c"))
	got, err := l.OfObject(t.Context(), Object{Resource: "pods", Namespace: "default", Name: "b"}, 0)
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", revisions(got), err)
	}
	for _, revision := range []int64{1, 3} {
		if _, ok, err := l.At(t.Context(), revision); !ok || err != nil {
			t.Errorf("revision %d: %v %v", revision, ok, err)
		}
	}
}

func TestSizeAndAgeAreBounded(t *testing.T) {
	const limit = 2 << 20
	dir := t.TempDir()
	l := open(t, Options{Dir: dir, MaxBytes: limit})
	for i := int64(1); i <= 100_000; i++ {
		l.Append(write(i, fmt.Sprintf("pod-%d", i)))
		if i%4096 == 0 {
			flush(t, l)
		}
	}
	flush(t, l)
	if _, dropped := l.Counts(); dropped > 0 {
		t.Errorf("%d dropped", dropped)
	}
	size := func() (total int64) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			info, _ := e.Info()
			total += info.Size()
		}
		return total
	}
	if got := size(); got > limit+maxBlock || got < limit/2 {
		t.Errorf("%d bytes on disk for a limit of %d", got, limit)
	}
	if _, ok, err := l.At(t.Context(), 100_000); !ok || err != nil {
		t.Errorf("the newest record: %v %v", ok, err)
	}
	if _, ok, err := l.At(t.Context(), 1); ok || err != nil {
		t.Errorf("the oldest record: %v %v", ok, err)
	}
	l.Close()
	later := time.Now().Add(8 * 24 * time.Hour) // files have the machine's time
	l = open(t, Options{Dir: dir, Clock: func() time.Time { return later }})
	flush(t, l)
	if got := size(); got != 0 {
		t.Errorf("%d bytes after eight days", got)
	}
}

func TestAFullBufferDropsAndDoesNotWait(t *testing.T) {
	l := &Log{writer: &segments.Writer{}} // which takes nothing
	for i := range int64(bufferRecords + 5) {
		l.Append(write(i+1, "a"))
	}
	if _, dropped := l.Counts(); dropped != 5 || len(l.waiting) != bufferRecords {
		t.Errorf("%d dropped, %d wait", dropped, len(l.waiting))
	}
}

// The budget is 16 MB: a full log on disk, all of it indexed, and a full buffer.
func TestMemoryIsBounded(t *testing.T) {
	l := open(t, Options{})
	before := heap()
	for i := int64(1); i <= 1_000_000; i++ {
		r := write(i, fmt.Sprintf("pod-%d", i/5))
		r.Because = because.Of(i-1, i-2)
		l.Append(r)
		if i%(bufferRecords/2) == 0 {
			flush(t, l)
		}
	}
	if _, err := l.OfObject(t.Context(), Object{Resource: "pods", Namespace: "default", Name: "pod-1"}, 1); err != nil {
		t.Fatal(err)
	}
	if grown := heap() - before; grown > 16<<20 {
		t.Errorf("%d bytes of memory", grown)
	} else {
		t.Logf("%d bytes of memory for %d segments", grown, len(l.files.View()))
	}
	runtime.KeepAlive(l)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func FuzzSegment(f *testing.F) {
	var e encoder
	buf := e.append(nil, write(5, "a", 3, 4))
	buf = e.append(buf, write(6, "a", 5))
	f.Add(buf)
	f.Add(binary.BigEndian.AppendUint32([]byte(magic), 3))
	f.Fuzz(func(t *testing.T, data []byte) {
		if end := eachBlock(data, func([]byte) bool { return true }); end > int64(max(len(data), len(magic))) {
			t.Fatalf("%d of %d bytes are whole", end, len(data))
		}
		d := decoder{Decoder: segments.Decoder{Buf: data}}
		var got []Record
		for len(d.Buf) > 0 {
			var r Record
			if d.next(&r) != nil {
				break
			}
			got = append(got, r)
		}
		// What could be decoded is encoded and decoded to the same.
		var e encoder
		var again []byte
		for i := range got {
			again = e.append(again, &got[i])
		}
		d = decoder{Decoder: segments.Decoder{Buf: again}}
		for i := range got {
			var r Record
			if err := d.next(&r); err != nil {
				t.Fatal(err)
			}
			if r != got[i] {
				t.Fatalf("got  %+v\nwant %+v", r, got[i])
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	l := open(b, Options{MaxBytes: 4 << 30})
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("pod-%d", i)
	}
	r := write(1, "a", 1, 2)
	r.Request = "0b4f3a0e-1111-4222-8333-444455556666"
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Revision, r.Name = int64(i+1), names[i%len(names)]
		r.Because = because.Of(r.Revision - 1)
		l.Append(r)
		if i%1024 == 1023 {
			flush(b, l) // so that nothing is dropped: the writer's work is measured too
		}
	}
	flush(b, l)
	appended, _ := l.Counts()
	b.ReportMetric(float64(l.files.Bytes())/float64(appended), "B/record")
}
