package apiserver

import (
	"bytes"
	"hash/crc32"
	"io"
	"runtime"
	"testing"
	"weak"
)

func TestGzipPoolDoesNotKeepResponses(t *testing.T) {
	out := &bytes.Buffer{}
	if err := zip(out, func(w io.Writer) error { _, err := w.Write([]byte("text")); return err }); err != nil || out.Len() == 0 {
		t.Fatal(err, out.Len())
	}
	held := weak.Make(out)
	out = nil
	runtime.GC()
	if held.Value() != nil {
		t.Error("the compressor in the pool keeps its last writer")
	}
}

func TestJoinedChecksumIsThatOfTheWhole(t *testing.T) {
	whole := bytes.Repeat([]byte("a list of pods, and of others"), 100)
	for _, at := range []int{0, 1, 7, 1000, len(whole) - 1, len(whole)} {
		first, second := crc32.ChecksumIEEE(whole[:at]), crc32.ChecksumIEEE(whole[at:])
		if got := joinedSum(first, second, len(whole)-at); got != crc32.ChecksumIEEE(whole) {
			t.Errorf("cut at %d: %x", at, got)
		}
	}
}
