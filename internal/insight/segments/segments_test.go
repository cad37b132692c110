package segments

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines is a format whose blocks are lines.
var lines = Format{
	Log: "the log of lines", Suffix: "lines", Magic: "lines001", Head: 4, MaxBytes: 1 << 20, MostSegment: 1 << 20,
	Whole: func(s *Segment, r io.ReaderAt) (int64, error) {
		data := make([]byte, s.Size)
		if _, err := r.ReadAt(data, 0); err != nil {
			return 0, err
		}
		return max(12, int64(bytes.LastIndexByte(data, '\n'))+1), nil
	},
}

func open(t *testing.T, opts Options) *Files {
	t.Helper()
	f, err := Open(lines, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.End)
	return f
}

func add(t *testing.T, f *Files, line string) {
	t.Helper()
	if f.IsFull(len(line)) {
		if err := f.Begin([]byte("head")); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Append([]byte(line)); err != nil {
		t.Fatal(err)
	}
}

// content is all lines of a view.
func content(t *testing.T, f *Files) string {
	t.Helper()
	var b strings.Builder
	view := f.View()
	for i := range view {
		data, err := view[i].Read(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if string(data[:12]) != "lines001head" || string(view[i].Head) != "head" {
			t.Errorf("it begins with %q, and its head is %q", data[:12], view[i].Head)
		}
		b.Write(data[12:])
	}
	return b.String()
}

func TestBlocksAreReadAfterARestart(t *testing.T) {
	dir := t.TempDir()
	f := open(t, Options{Dir: dir})
	add(t, f, "one\n")
	f.End()
	f = open(t, Options{Dir: dir})
	if err := f.Resume(); err != nil {
		t.Fatal(err)
	}
	add(t, f, "two\n")
	f.End()
	f = open(t, Options{Dir: dir}) // does not resume
	add(t, f, "three\n")
	if got := content(t, f); got != "one\ntwo\nthree\n" || len(f.View()) != 2 {
		t.Errorf("%q in %d segments", got, len(f.View()))
	}
}

func TestATornEndIsCut(t *testing.T) {
	dir := t.TempDir()
	f := open(t, Options{Dir: dir})
	add(t, f, "one\n")
	add(t, f, "two\n")
	path := f.View()[0].Path
	f.End()
	if err := os.Truncate(path, 12+6); err != nil {
		t.Fatal(err)
	}
	f = open(t, Options{Dir: dir})
	if err := f.Resume(); err != nil {
		t.Fatal(err)
	}
	add(t, f, "three\n")
	if got := content(t, f); got != "one\nthree\n" {
		t.Errorf("%q", got)
	}
}

func TestAFileThatEndsInItsHeadIsRemovedWithALine(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"0000000000000001.lines": "lines001hea", "0000000000000002.lines": "lin", "notes.lines": "mine", "0000000000000003.other": "other"} {
		write(t, filepath.Join(dir, name), text)
	}
	var log bytes.Buffer
	f := open(t, Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 2 || len(f.View()) != 0 {
		t.Errorf("%q are left, %d segments, %v", left, len(f.View()), err)
	}
	if n := strings.Count(log.String(), "no segment of the log of lines"); n != 2 {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A user may go back to an older program for a while: the newer program finds its segments again.
func TestSegmentsOfAnUnknownFormatAreKept(t *testing.T) {
	dir := t.TempDir()
	f := open(t, Options{Dir: dir})
	add(t, f, "one\n")
	f.End()
	const newer = "lines002a longer head\nand blocks"
	for _, name := range []string{"0000000000000002.lines", "0000000000000003.lines"} {
		write(t, filepath.Join(dir, name), newer)
	}
	var log bytes.Buffer
	f = open(t, Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err := f.Resume(); err != nil {
		t.Fatal(err)
	}
	add(t, f, "two\n")
	if got := content(t, f); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
	if view := f.View(); len(view) != 2 || filepath.Base(view[1].Path) != "0000000000000004.lines" {
		t.Errorf("%d segments, the last one is %s", len(view), view[len(view)-1].Path)
	}
	for _, name := range []string{"0000000000000002.lines", "0000000000000003.lines"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != newer {
			t.Errorf("%s has %q, %v", name, data, err)
		}
	}
	for _, part := range []string{"an unknown format", "file=" + filepath.Join(dir, "0000000000000002.lines"), "format=lines002", "segments=2"} {
		if strings.Count(log.String(), part) != 1 || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("not one line with %s: %s", part, log.String())
		}
	}
}

// The bounds of a log hold for segments that this program cannot read.
func TestSegmentsOfAnUnknownFormatAreBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0000000000000001.lines")
	write(t, path, "lines002")
	var log bytes.Buffer
	now := time.Now()
	f := open(t, Options{Dir: dir, MaxAge: time.Hour, Clock: func() time.Time { return now }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	now = now.Add(2 * time.Hour)
	add(t, f, "one\n")
	if data, err := os.ReadFile(path); err == nil && bytes.HasPrefix(data, []byte("lines002")) {
		t.Error("it is not removed")
	}
	if !strings.Contains(log.String(), "beyond the bounds of the log of lines") {
		t.Errorf("no line tells of it: %s", log.String())
	}
}

func TestSizeAndAgeAreBounded(t *testing.T) {
	now := time.Now()
	f := open(t, Options{Dir: t.TempDir(), MaxBytes: 1 << 20, MaxAge: time.Hour, Clock: func() time.Time { return now }})
	line := strings.Repeat("x", 1023) + "\n"
	for range 4096 {
		add(t, f, line)
	}
	if got := f.Bytes(); got > 1<<20 || got < 1<<19 {
		t.Errorf("%d bytes for a limit of %d", got, 1<<20)
	}
	now = now.Add(2 * time.Hour)
	add(t, f, "new\n")
	if got := content(t, f); got != "new\n" {
		t.Errorf("%d bytes are left after two hours", len(got))
	}
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	f := open(t, Options{Dir: t.TempDir()})
	add(t, f, "one\n")
	if err := f.file.Close(); err != nil {
		t.Fatal(err)
	}
	if f.Append([]byte("two\n")) == nil {
		t.Fatal("a write to a closed file has no error")
	}
	f.End()
	add(t, f, "three\n")
	if got := content(t, f); got != "one\nthree\n" {
		t.Errorf("%q", got)
	}
}

func TestAMemoIsKeptOfAnEndedSegment(t *testing.T) {
	f := open(t, Options{Dir: t.TempDir()})
	add(t, f, "one\n")
	reads := 0
	for _, end := range []func(){func() {}, f.End, func() {}} {
		end()
		size, err := Memo(&f.View()[0], func() (int64, error) { reads++; return f.View()[0].Size, nil })
		if err != nil || size != 16 {
			t.Errorf("%d %v", size, err)
		}
	}
	if reads != 2 { // while it is written, and once after that
		t.Errorf("%d reads", reads)
	}
}

// The writer and readers work side by side: a view is always whole.
func TestViewsAreWhole(t *testing.T) {
	f := open(t, Options{Dir: t.TempDir(), MaxBytes: 256 << 10})
	var mu sync.Mutex
	var waiting []string
	take := func() {
		mu.Lock()
		batch := waiting
		waiting = nil
		mu.Unlock()
		for _, line := range batch {
			add(t, f, line)
		}
	}
	w := NewWriter(Work{Drain: take, Close: f.End})
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for range 50 {
				view := f.View()
				for i := range view {
					data, err := view[i].Read(1 << 20)
					if err != nil && !Gone(err) || err == nil && len(data) > 12 && data[len(data)-1] != '\n' {
						t.Errorf("%v, a view of %d bytes", err, len(data))
					}
				}
			}
		})
	}
	for i := range 2000 {
		mu.Lock()
		waiting = append(waiting, fmt.Sprintf("%d %s\n", i, strings.Repeat("x", i%1000)))
		mu.Unlock()
		w.Wake()
		if i%100 == 0 {
			w.Hurry()
		}
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := content(t, f); !strings.Contains(got, "\n1999 ") {
		t.Error("the last line is missing")
	}
	group.Wait()
	w.Stop()
	w.Stop() // does nothing
	if err := w.Flush(t.Context()); err != nil {
		t.Error(err)
	}
}

func FuzzDecoder(f *testing.F) {
	var p Place
	f.Add(append(p.Append(nil, 7, 1000), 3, 'a', 'b', 'c'))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := Decoder{Buf: data}
		var place Place
		for len(d.Buf) > 0 {
			before := len(d.Buf)
			if place.Next(&d) != nil {
				return
			}
			if _, err := d.Bytes(100); err != nil {
				return
			}
			if len(d.Buf) >= before {
				t.Fatal("nothing was read")
			}
		}
	})
}
