package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeRules keeps all of kinds like /registry/KIND/NAMESPACE/NAME. states are what the store has.
type fakeRules struct {
	states map[string]Change // Before and BeforeRevision, by key and revision
}

func (fakeRules) Recorded(key string) bool { return !strings.HasPrefix(key, "/registry/leases/") }

func (fakeRules) Describe(key string) (kind, namespace string) {
	parts := strings.Split(key, "/")
	return "/registry/" + parts[2], parts[3]
}

func (f fakeRules) Before(_ context.Context, key string, revision int64) ([]byte, int64, error) {
	c, ok := f.states[fmt.Sprint(key, revision)]
	if !ok {
		return nil, 0, errors.New("compacted")
	}
	return c.Before, c.BeforeRevision, nil
}

func (fakeRules) Reduce(*Change, *Write) {}

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func second(n int64) time.Time { return began.Add(time.Duration(n) * time.Second) }

func openLog(t testing.TB, dir string, change ...func(*Options)) *Log {
	t.Helper()
	opts := Options{Dir: dir, Clock: func() time.Time { return began }}
	for _, fn := range change {
		fn(&opts)
	}
	l, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func started(t testing.TB, dir string, revision int64, change ...func(*Options)) *Log {
	t.Helper()
	l := openLog(t, dir, change...)
	if err := l.Start(fakeRules{}, revision); err != nil {
		t.Fatal(err)
	}
	return l
}

func flush(t testing.TB, l *Log) {
	t.Helper()
	if err := l.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func key(name string) string { return "/registry/pods/default/" + name }

// update is a change of a key from one revision to another, at the second of the new one.
func update(name string, from, to int64) []Write {
	return []Write{{Key: key(name), Revision: to, Effect: Changed, Before: fmt.Appendf(nil, "%s at %d", name, from), BeforeRevision: from, After: fmt.Appendf(nil, "%s at %d", name, to)}}
}

func creation(name string, at int64) []Write {
	return []Write{{Key: key(name), Revision: at, Effect: Created, After: fmt.Appendf(nil, "%s at %d", name, at)}}
}

func all(t testing.TB, l *Log, q Query) (list []Change) {
	t.Helper()
	err := l.Each(t.Context(), q, func(c Change) bool { list = append(list, c); return true })
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func revisions(list []Change) (out []int64) {
	for _, c := range list {
		out = append(out, c.Revision)
	}
	return out
}

func TestChangesAreReadInBothOrders(t *testing.T) {
	l := started(t, t.TempDir(), 10)
	l.Append(creation("a", 11), 11, second(11))
	l.Append(update("a", 11, 12), 12, second(12))
	l.Append([]Write{{Key: "/registry/leases/x", Revision: 13}}, 13, second(13))
	l.Append([]Write{{Key: key("a"), Revision: 14, Effect: Removed, Before: []byte("a at 12"), BeforeRevision: 12}}, 14, second(14))
	list := all(t, l, Query{})
	if !slices.Equal(revisions(list), []int64{11, 12, 14}) {
		t.Fatalf("%+v", list)
	}
	if list[0].Before != nil || string(list[1].Before) != "a at 11" || list[1].BeforeRevision != 11 || list[2].Effect != Removed || !list[2].Time.Equal(second(14)) {
		t.Errorf("%+v", list)
	}
	if got := revisions(all(t, l, Query{NewestFirst: true, After: 11})); !slices.Equal(got, []int64{14, 12}) {
		t.Error(got)
	}
	if got := all(t, l, Query{Key: key("b")}); len(got) != 0 {
		t.Error(got)
	}
}

func TestTimesBecomeRevisions(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		dir := t.TempDir()
		l := started(t, dir, 10)
		for i := int64(11); i < 20; i++ {
			l.Append(creation(fmt.Sprint(i), i), i, second(i))
		}
		if flushed {
			l.Close()
			l = started(t, dir, 19)
		}
		for at, want := range map[int64]int64{0: 10, 5: 10, 11: 11, 15: 15, 19: 19, 100: 19} {
			if got, known, err := l.RevisionAt(t.Context(), second(at)); got != want || !known || err != nil {
				t.Errorf("flushed %v, second %d: %d %v %v, want %d", flushed, at, got, known, err, want)
			}
		}
		if _, known, _ := l.RevisionAt(t.Context(), second(-1)); known {
			t.Error("a time before the reach is known")
		}
	}
}

func TestARestartGoesOnWithoutAGap(t *testing.T) {
	dir := t.TempDir()
	l := started(t, dir, 10)
	l.Append(creation("a", 11), 11, second(11))
	l.Append(nil, 15, second(15)) // of keys that are not recorded
	l.Close()
	l = openLog(t, dir)
	if position, _ := l.Position(); position != 15 {
		t.Fatal("position", position)
	}
	if err := l.Start(fakeRules{}, 15); err != nil {
		t.Fatal(err)
	}
	l.Append(update("a", 11, 16), 16, second(16))
	if got := revisions(all(t, l, Query{Gaps: func(g Gap) { t.Error("a gap", g) }})); !slices.Equal(got, []int64{11, 16}) {
		t.Error(got)
	}
}

func TestMissedChangesAreAGap(t *testing.T) {
	dir := t.TempDir()
	l := started(t, dir, 10)
	l.Append(creation("a", 11), 11, second(11))
	l.Close()
	l = openLog(t, dir, func(o *Options) { o.Clock = func() time.Time { return second(60) } })
	if err := l.Start(fakeRules{}, 50); err != nil {
		t.Fatal(err)
	}
	l.Append(creation("b", 51), 51, second(61))
	l.Lose(60, second(70))
	var gaps []Gap
	got := revisions(all(t, l, Query{Gaps: func(g Gap) { gaps = append(gaps, g) }}))
	if !slices.Equal(got, []int64{11, 51}) || len(gaps) != 2 || gaps[0].FromRevision != 11 || gaps[0].ToRevision != 50 || !gaps[0].To.Equal(second(60)) ||
		gaps[1].FromRevision != 51 || gaps[1].ToRevision != 60 {
		t.Fatalf("%v %+v", got, gaps)
	}
	gaps = nil
	all(t, l, Query{After: 60, Gaps: func(g Gap) { gaps = append(gaps, g) }})
	if len(gaps) > 0 {
		t.Errorf("gaps after all of them: %+v", gaps)
	}
}

func TestAnOlderStoreBeginsAnew(t *testing.T) {
	dir := t.TempDir()
	l := started(t, dir, 10)
	l.Append(creation("a", 11), 11, second(11))
	l.Close()
	l = started(t, dir, 5)
	l.Append(creation("b", 6), 6, second(12))
	if got := revisions(all(t, l, Query{})); !slices.Equal(got, []int64{6}) {
		t.Error(got)
	}
}

func TestAFullBufferLeavesAGap(t *testing.T) {
	l := openLog(t, t.TempDir())
	if err := l.Start(fakeRules{}, 10); err != nil {
		t.Fatal(err)
	}
	l.blockMu.Lock() // the writer waits
	l.Append(creation("a", 11), 11, second(11))
	big := make([]byte, maxWaitingBytes)
	revision := int64(12)
	for ; l.dropped.Load() == 0; revision++ {
		l.Append([]Write{{Key: key("a"), Revision: revision, Effect: Changed, Before: big, BeforeRevision: revision - 1}}, revision, second(revision))
	}
	l.blockMu.Unlock()
	flush(t, l)
	l.Append(update("a", revision-1, revision), revision, second(revision))
	var gaps []Gap
	got := revisions(all(t, l, Query{Gaps: func(g Gap) { gaps = append(gaps, g) }}))
	if len(gaps) != 1 || gaps[0].ToRevision != revision-1 || got[len(got)-1] != revision || slices.Contains(got, revision-1) {
		t.Errorf("%v %+v", got, gaps)
	}
}

func TestOldSegmentsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	l := started(t, dir, 10, func(o *Options) { o.MaxBytes = 512 << 10 })
	revision := int64(10)
	for range 200 { // of bytes that cannot be compressed
		noise := make([]byte, 16<<10)
		for i := range noise {
			noise[i] = byte(random.Uint32())
		}
		revision++
		l.Append([]Write{{Key: key("a"), Revision: revision, Effect: Changed, Before: noise, BeforeRevision: revision - 1}}, revision, second(revision))
		flush(t, l)
	}
	l.Close()
	size := int64(0)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 512<<10+blockSize+64<<10 || len(files) < 2 {
		t.Errorf("%d bytes in %d files", size, len(files))
	}
	l = started(t, dir, revision)
	list := all(t, l, Query{})
	if len(list) == 0 || list[0].Revision <= 11 || list[len(list)-1].Revision != revision {
		t.Fatal(revisions(list))
	}
	for i := 1; i < len(list); i++ {
		if list[i].Revision != list[i-1].Revision+1 {
			t.Error("a change is missing after", list[i-1].Revision)
		}
	}
	reach, known, err := l.RevisionAt(t.Context(), l.Reach())
	if err != nil || !known || reach < list[0].Revision-1 {
		t.Errorf("the reach is revision %d %v %v, the first change %d", reach, known, err, list[0].Revision)
	}
}

// A process is killed at any moment: the file ends anywhere.
func TestATornEndIsCut(t *testing.T) {
	dir := t.TempDir()
	l := started(t, dir, 10)
	for i := int64(11); i < 17; i++ {
		l.Append(update("a", i-1, i), i, second(i))
		l.Close() // ends the block
		l = started(t, dir, i)
	}
	l.Close()
	path := filepath.Join(dir, "0000000000000001.history")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	for length := range len(whole) + 1 {
		torn := t.TempDir()
		if err := os.WriteFile(filepath.Join(torn, filepath.Base(path)), whole[:length], 0o600); err != nil {
			t.Fatal(err)
		}
		l := openLog(t, torn)
		position, _ := l.Position()
		if position < last {
			t.Fatalf("%d bytes: position %d after %d", length, position, last)
		}
		last = position
		if err := l.Start(fakeRules{}, max(position, 10)); err != nil {
			t.Fatal(err)
		}
		l.Append(update("a", 16, 17), 17, second(17))
		got := revisions(all(t, l, Query{Gaps: func(g Gap) { t.Error("a gap", g) }}))
		want := []int64{}
		for i := int64(11); i <= position; i++ {
			want = append(want, i)
		}
		if !slices.Equal(got, append(want, 17)) {
			t.Fatalf("%d bytes, position %d: %v", length, position, got)
		}
		l.Close()
	}
	if last != 16 {
		t.Error("the whole file ends at", last)
	}
}

func TestDamageIsAGap(t *testing.T) {
	dir := t.TempDir()
	l := started(t, dir, 10)
	for i := int64(11); i < 14; i++ {
		l.Append(update("a", i-1, i), i, second(i))
		l.Close() // ends the block
		l = started(t, dir, i)
	}
	path := filepath.Join(dir, "0000000000000001.history")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	if err := blocks(&l.files.View()[0], bytes.NewReader(data), func(p placed) bool { at = p.at + p.length() - 1; return p.position < 12 }); err != nil {
		t.Fatal(err)
	}
	data[at] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var gaps []Gap
	got := revisions(all(t, l, Query{Gaps: func(g Gap) { gaps = append(gaps, g) }}))
	if !slices.Equal(got, []int64{11, 13}) || len(gaps) != 1 || gaps[0].FromRevision != 11 || gaps[0].ToRevision != 12 {
		t.Errorf("%v %+v", got, gaps)
	}
}

// What the log answers is what was appended, whatever the blocks and restarts.
func TestStatesAreRebuilt(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	l := started(t, dir, 0, func(o *Options) { o.MaxBytes = 4 << 20 })
	present := map[string]Change{}             // Before and BeforeRevision are the present state
	history := []map[string]int64{{}}          // revisions of the present states at each revision
	names := []string{"a", "b", "c", "d", "e"} // of few objects
	for revision := int64(1); revision < 400; revision++ {
		name := names[random.IntN(len(names))]
		state := fmt.Appendf(nil, "%s at %d %s", name, revision, strings.Repeat("x", random.IntN(4000)))
		w := Write{Key: key(name), Revision: revision, Effect: Created, After: state}
		if was, ok := present[w.Key]; ok {
			w.Effect, w.Before, w.BeforeRevision = Changed, was.Before, was.BeforeRevision
			if random.IntN(4) == 0 {
				w.Effect, w.After = Removed, nil
			}
		}
		delete(present, w.Key)
		if w.Effect != Removed {
			present[w.Key] = Change{Before: state, BeforeRevision: revision}
		}
		l.Append([]Write{w}, revision, second(revision))
		now := map[string]int64{}
		for k, c := range present {
			now[k] = c.BeforeRevision
		}
		history = append(history, now)
		if random.IntN(80) == 0 {
			l.Close()
			l = started(t, dir, revision)
		}
	}
	for _, at := range []int64{0, 1, 57, 200, 398, 399} {
		revision, known, err := l.RevisionAt(t.Context(), second(at))
		if err != nil || !known || revision != at {
			t.Fatal(at, revision, known, err)
		}
		states := map[string]int64{}
		for k, c := range present {
			states[k] = c.BeforeRevision
		}
		undone := map[string]bool{}
		for _, c := range all(t, l, Query{After: at, Kind: "/registry/pods", Namespace: "default"}) {
			if undone[c.Key] {
				continue
			}
			undone[c.Key] = true
			if delete(states, c.Key); c.Effect != Created {
				states[c.Key] = c.BeforeRevision
				if want := fmt.Sprintf("%s at %d ", c.Key[len(key("")):], c.BeforeRevision); !strings.HasPrefix(string(c.Before), want) {
					t.Errorf("%q, want %q", c.Before[:min(20, len(c.Before))], want)
				}
			}
		}
		if len(states) != len(history[at]) {
			t.Fatalf("at %d: %v, want %v", at, states, history[at])
		}
		for k, want := range history[at] {
			if states[k] != want {
				t.Errorf("at %d: %s is %d, want %d", at, k, states[k], want)
			}
		}
	}
}

// The first version had no deltas. Its segments are read, and a new one follows them.
func TestSegmentsOfTheFirstVersionAreRead(t *testing.T) {
	dir := t.TempDir()
	l := started(t, dir, 10)
	l.Append(creation("a", 11), 11, second(11))
	l.Append(update("a", 11, 12), 12, second(12))
	l.Close()
	path := filepath.Join(dir, "0000000000000001.history")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(data, older)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for revision := int64(13); revision < 15; revision++ {
		l = started(t, dir, revision-1)
		l.Append(update("a", revision-1, revision), revision, second(revision))
		l.Close()
	}
	l = started(t, dir, 14)
	list := all(t, l, Query{Gaps: func(g Gap) { t.Error("a gap", g) }})
	if !slices.Equal(revisions(list), []int64{11, 12, 13, 14}) || string(list[3].Before) != "a at 13" || len(l.files.View()) != 2 {
		t.Errorf("%v in %d segments", revisions(list), len(l.files.View()))
	}
}

// A newer program's segments stay; the changes that only they have are a gap.
func TestSegmentsOfANewerVersionAreKept(t *testing.T) {
	dir := t.TempDir()
	l := started(t, dir, 10)
	l.Append(creation("a", 11), 11, second(11))
	l.Close()
	const newer = "knarrhs9 and blocks that this program cannot read"
	path := filepath.Join(dir, "0000000000000002.history")
	if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	l = started(t, dir, 14, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
	l.Append(creation("b", 15), 15, second(15))
	l.Close()
	if strings.Count(out.String(), "format=knarrhs9") != 1 || strings.Count(out.String(), path) != 1 {
		t.Errorf("not one line names the file and its format: %s", out.String())
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != newer {
		t.Errorf("%q, %v", data, err)
	}
	var gaps []Gap
	list := all(t, started(t, dir, 15), Query{Gaps: func(g Gap) { gaps = append(gaps, g) }})
	if !slices.Equal(revisions(list), []int64{11, 15}) || len(gaps) != 1 || gaps[0].FromRevision != 11 || gaps[0].ToRevision != 14 {
		t.Errorf("%v %+v", revisions(list), gaps)
	}
}

// The states of an object that changes often are deltas, and come back whole.
func TestStatesOfABurstAreDeltas(t *testing.T) {
	l := started(t, t.TempDir(), 10)
	state := func(revision int64) []byte {
		return fmt.Appendf(nil, "%s revision %d %s", strings.Repeat("spec ", 200), revision, strings.Repeat("status ", 200))
	}
	for i := int64(11); i < 100; i++ {
		l.Append([]Write{{Key: key("a"), Revision: i, Effect: Changed, Before: state(i - 1), BeforeRevision: i - 1}}, i, second(i))
	}
	flush(t, l)
	if n := len(l.block.raw); n > 10_000 {
		t.Errorf("89 states of 2,400 bytes have %d", n)
	}
	for _, c := range all(t, l, Query{NewestFirst: true}) {
		if !bytes.Equal(c.Before, state(c.BeforeRevision)) {
			t.Errorf("the state of %d is %.20q", c.BeforeRevision, c.Before)
		}
	}
}

func TestUnknownStatesAreRead(t *testing.T) {
	l := openLog(t, t.TempDir())
	rules := fakeRules{states: map[string]Change{fmt.Sprint(key("a"), 12): {Before: []byte("from the store"), BeforeRevision: 7}}}
	if err := l.Start(rules, 10); err != nil {
		t.Fatal(err)
	}
	l.Append([]Write{{Key: key("a"), Revision: 12, Effect: Changed}, {Key: key("a"), Revision: 13, Effect: Changed, Before: []byte("stale"), BeforeRevision: 7}}, 13, second(13))
	l.Append([]Write{{Key: key("b"), Revision: 14, Effect: Removed}}, 14, second(14))
	list := all(t, l, Query{})
	if len(list) != 3 || string(list[0].Before) != "from the store" || list[1].BeforeRevision != 12 || !list[2].Lost {
		t.Errorf("%+v", list)
	}
}

func FuzzBlocks(f *testing.F) {
	dir := f.TempDir()
	l := started(f, dir, 10)
	l.Append(creation("a", 11), 11, second(11))
	l.Append(update("a", 11, 12), 12, second(12))
	l.Lose(20, second(20))
	l.Close()
	data, err := os.ReadFile(filepath.Join(dir, "0000000000000001.history"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)-3])
	var e encoder
	raw := e.change(nil, &Change{Revision: 5, Time: began, Key: "k", Effect: Changed, Before: []byte("b"), BeforeRevision: 4, Touched: []string{"data.a"}})
	f.Add(e.gap(raw, &Gap{From: began, To: began, FromRevision: 1, ToRevision: 2}))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = decode(data, func(Change) {}, func(Gap) {})
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "0000000000000001.history"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Each(t.Context(), Query{NewestFirst: true}, func(Change) bool { return true }); err != nil {
			t.Fatal(err)
		}
	})
}
