package reload

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestAChangedFileIsAppliedUnlessItIsInvalid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var used []string
	late := true
	apply := func(_ context.Context, data []byte) error {
		if text := string(data); text == "broken" || text == "late" && late {
			return errors.New(text)
		}
		used = append(used, string(data))
		return nil
	}
	var logged strings.Builder
	log := slog.New(slog.NewTextHandler(&logged, nil))
	if _, err := Open(t.Context(), "test", path, log, apply); err == nil || !strings.HasPrefix(err.Error(), `failed to load test configuration from file "`) {
		t.Fatalf("no file: %v", err)
	}
	write("broken")
	if _, err := Open(t.Context(), "test", path, log, apply); err == nil {
		t.Fatal("a broken file is taken at the start")
	}
	write("one")
	f, err := Open(t.Context(), "test", path, log, apply)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "broken", "broken", "two", "late", "late"} {
		write(text)
		f.Check(t.Context(), time.Now())
	}
	late = false
	f.Check(t.Context(), time.Now())
	if want := []string{"one", "two", "late"}; !slices.Equal(used, want) {
		t.Errorf("used %q, want %q", used, want)
	}
	if n := strings.Count(logged.String(), "level=ERROR"); n != 2 {
		t.Errorf("%d errors are logged, want one for each broken content:\n%s", n, logged.String())
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(f.Collectors()...)
	got := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.Metric {
			if m.Counter != nil {
				got[family.GetName()+" "+m.Label[1].GetValue()] = m.Counter.GetValue()
			}
		}
	}
	const name = "apiserver_test_config_controller_automatic_reloads_total "
	if got[name+"success"] != 2 || got[name+"failure"] != 4 {
		t.Errorf("counted %v", got)
	}
}

func TestFilesThatBelongTogetherAreAppliedTogether(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "cert"), filepath.Join(dir, "key")}
	write := func(i int, text string) {
		if err := os.WriteFile(paths[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var used []string
	apply := func(_ context.Context, contents [][]byte) error {
		if string(contents[0]) != string(contents[1]) {
			return errors.New("they do not fit")
		}
		used = append(used, string(contents[0]))
		return nil
	}
	log := slog.New(slog.DiscardHandler)
	write(0, "one")
	if _, err := OpenAll(t.Context(), "test", paths, log, apply); err == nil || !strings.Contains(err.Error(), paths[1]) {
		t.Fatalf("without the second file: %v", err)
	}
	write(1, "one")
	f, err := OpenAll(t.Context(), "test", paths, log, apply)
	if err != nil || f.Collectors() != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		file int
		text string
	}{{0, "two"}, {1, "two"}, {1, "two"}} {
		write(step.file, step.text)
		f.Check(t.Context(), time.Now())
	}
	if want := []string{"one", "two"}; !slices.Equal(used, want) {
		t.Errorf("used %q, want %q", used, want)
	}
}

func TestCertificatesAreCheckedMoreOftenThanOtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cert")
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	used := make(chan string, 2)
	f, err := OpenAll(t.Context(), "test", []string{path}, slog.New(slog.DiscardHandler), func(_ context.Context, contents [][]byte) error {
		used <- string(contents[0])
		return nil
	})
	if err != nil || <-used != "one" || f.every >= Every {
		t.Fatalf("%v, every %v", err, f.every)
	}
	if err := os.WriteFile(path, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.every = time.Millisecond
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	defer func() { end(); <-done }()
	select {
	case got := <-used:
		if got != "two" {
			t.Errorf("used %q", got)
		}
	case <-time.After(time.Minute):
		t.Error("a changed file is not in use")
	}
}
