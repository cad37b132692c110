package logs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
)

type reopener struct {
	internalapi.RuntimeService
	err error
}

func (r reopener) ReopenContainerLog(context.Context, string) error { return r.err }

func TestLogsAreRotatedCompressedAndForgotten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &Rotator{Runtime: reopener{}, MaxSize: 10, MaxFiles: 3, Now: func() time.Time { now = now.Add(time.Second); return now }}
	for range 5 {
		if err := os.WriteFile(path, []byte("more than ten bytes\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.Rotate(t.Context(), "id", path); err != nil {
			t.Fatal(err)
		}
	}
	parts, _ := filepath.Glob(path + "*")
	want := []string{path + ".20260101-000004.gz", path + ".20260101-000005"}
	if len(parts) != 2 || parts[0] != want[0] || parts[1] != want[1] {
		t.Errorf("files %q, want %q", parts, want)
	}
	if err := os.WriteFile(path, []byte("small"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Rotate(t.Context(), "id", path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a small log was rotated: %v", err)
	}
	if err := os.WriteFile(path, []byte("more than ten bytes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Runtime = reopener{err: errors.New("no")}
	if err := r.Rotate(t.Context(), "id", path); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the log lost its name: %v", err)
	}
}
