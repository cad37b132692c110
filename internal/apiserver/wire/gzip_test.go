package wire

import (
	"bytes"
	"io"
	"runtime"
	"testing"
	"weak"
)

func TestGzipPoolDoesNotKeepResponses(t *testing.T) {
	out := &bytes.Buffer{}
	if err := GzipTo(out, func(w io.Writer) error { _, err := w.Write([]byte("text")); return err }); err != nil || out.Len() == 0 {
		t.Fatal(err, out.Len())
	}
	held := weak.Make(out)
	out = nil
	runtime.GC()
	if held.Value() != nil {
		t.Error("the compressor in the pool keeps its last writer")
	}
}
