package logs

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestALogIsCompleteWhenItsWriterHasClosedIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	w, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		time.Sleep(20 * time.Millisecond)
		_, _ = w.WriteString("last words\n")
		w.Close()
	})
	Complete(t.Context(), path)
	if said, err := os.ReadFile(path); err != nil || string(said) != "last words\n" {
		t.Errorf("the log contains %q, %v", said, err)
	}
	Complete(t.Context(), path)
	Complete(t.Context(), path+".not-there")
}

func TestAnOpenLogIsReadAfterTheTimeout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	w, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	synctest.Test(t, func(t *testing.T) { Complete(t.Context(), path) })
}
