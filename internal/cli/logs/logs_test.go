package logs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func texts(lines []Line) string {
	var all []string
	for _, l := range lines {
		all = append(all, l.Source+":"+l.Text)
	}
	return strings.Join(all, "|")
}

func TestALogIsBoundedAndKeepsItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "knarr.log")
	f, err := Open(path, 100, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if _, err := fmt.Fprintf(f, "line %02d\n", i); err != nil { // 8 bytes
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".1"} {
		if info, err := os.Stat(name); err != nil || info.Size() > 100 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	lines, err := Read([]Source{{"k", path}}, Options{Last: -1})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(lines); n < 12 || lines[n-1].Text != "line 49" || lines[0].Text != fmt.Sprintf("line %02d", 50-n) {
		t.Errorf("%d lines are left: %s", n, texts(lines))
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 2 {
		t.Errorf("files: %v", files)
	}
}

func TestAnExistingLogIsAppendedTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "knarr.log")
	write(t, path, "before\n")
	f, err := Open(path, 100, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintln(f, "after")
	if data, _ := os.ReadFile(path); string(data) != "before\nafter\n" {
		t.Errorf("%q", data)
	}
}

func TestLogsAreMergedByTime(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a+".1", "time=2026-01-01T00:00:01Z level=INFO msg=1\n")
	write(t, a, "time=2026-01-01T00:00:03Z level=INFO msg=3\npanic: 3\n\ngoroutine 1\n")
	write(t, b, "time=\"2026-01-01T00:00:02.5Z\" level=warning msg=2\ntime=\"2026-01-01T00:00:04Z\" msg=4\n")
	sources := []Source{{"a", a}, {"b", b}, {"missing", filepath.Join(dir, "c")}}
	for name, tt := range map[string]struct {
		options Options
		want    string
	}{
		"all":       {Options{Last: -1}, "a:time=2026-01-01T00:00:01Z level=INFO msg=1|b:time=\"2026-01-01T00:00:02.5Z\" level=warning msg=2|a:time=2026-01-01T00:00:03Z level=INFO msg=3|a:panic: 3|a:|a:goroutine 1|b:time=\"2026-01-01T00:00:04Z\" msg=4"},
		"the last":  {Options{Last: 2}, "a:goroutine 1|b:time=\"2026-01-01T00:00:04Z\" msg=4"},
		"none":      {Options{Last: 0}, ""},
		"since":     {Options{Last: -1, Since: time.Date(2026, 1, 1, 0, 0, 3, 0, time.UTC)}, "a:time=2026-01-01T00:00:03Z level=INFO msg=3|a:panic: 3|a:|a:goroutine 1|b:time=\"2026-01-01T00:00:04Z\" msg=4"},
		"the later": {Options{Last: -1, Since: time.Date(2027, 1, 1, 0, 0, 3, 0, time.UTC)}, ""},
	} {
		lines, err := Read(sources, tt.options)
		if got := texts(lines); err != nil || got != tt.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestAFollowerContinuesInTheNextFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f := Follow(Source{"k", path})
	defer f.Close()
	if lines := f.More(); len(lines) > 0 {
		t.Fatalf("a missing file has %v", lines)
	}
	log, err := Open(path, 1000, false)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var got []Line
	for i := range 500 { // the file is renamed several times
		fmt.Fprintf(log, "line %03d\n", i)
		if i%7 == 0 {
			got = append(got, f.More()...)
		}
	}
	got = append(got, f.More()...)
	if len(got) != 500 || got[0].Text != "line 000" || got[499].Text != "line 499" {
		t.Errorf("%d lines: %s", len(got), texts(got))
	}
}

func TestAFollowerBeginsAtTheEndAndWaitsForWholeLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, "old\n")
	f := Follow(Source{"k", path})
	defer f.Close()
	log, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, step := range []struct{ text, want string }{{"ha", ""}, {"lf\nnext", "k:half"}, {"\n", "k:next"}} {
		fmt.Fprint(log, step.text)
		if got := texts(f.More()); got != step.want {
			t.Errorf("after %q: %q", step.text, got)
		}
	}
	if err := os.Truncate(path, 0); err != nil { // as containerd's log is truncated
		t.Fatal(err)
	}
	fmt.Fprintln(log, "new")
	if got := texts(f.More()); got != "k:new" {
		t.Errorf("after the file was emptied: %q", got)
	}
}

func TestTailReturnsTheLastLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if got := Tail(path, 3); got != nil {
		t.Errorf("a missing file: %v", got)
	}
	write(t, path, strings.Repeat("x\n", 100000)+"a\nb\n")
	if got := Tail(path, 2); strings.Join(got, " ") != "a b" {
		t.Errorf("%v", got)
	}
}
