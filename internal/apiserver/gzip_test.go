package apiserver

import (
	"bytes"
	"io"
	"runtime"
	"testing"
	"weak"
)

func TestWhatWasZippedIsNotKept(t *testing.T) {
	out := &bytes.Buffer{}
	if err := zip(out, func(w io.Writer) error { _, err := w.Write([]byte("text")); return err }); err != nil || out.Len() == 0 {
		t.Fatal(err, out.Len())
	}
	held := weak.Make(out)
	out = nil
	runtime.GC()
	if held.Value() != nil {
		t.Error("the compressor in the pool holds on to what it has written to")
	}
}
