package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// greedyReader records the most bytes that a reader was asked for beyond those it had delivered.
type greedyReader struct {
	io.Reader
	given, ahead int
}

// Read implements io.Reader.
func (a *greedyReader) Read(p []byte) (int, error) {
	a.ahead = max(a.ahead, len(p)-3*a.given)
	n, err := a.Reader.Read(p)
	a.given += n
	return n, err
}

func TestMemoryForABodyIsAllocatedAsItArrives(t *testing.T) {
	whole := bytes.Repeat([]byte("0123456789abcdef"), MaxBody/16)
	for _, n := range []int{0, 1, maxPrealloc - 1, maxPrealloc, maxPrealloc + 1, 4 * maxPrealloc, 4*maxPrealloc + 1, MaxBody} {
		for _, sent := range []int{n, n / 2, n - 1, min(n, maxPrealloc), 0} {
			if sent < 0 {
				continue
			}
			r := &greedyReader{Reader: bytes.NewReader(whole[:sent])}
			got, err := readSized(r, n)
			if r.ahead > maxPrealloc {
				t.Errorf("%d of %d bytes: %d are made room for when they were only promised", sent, n, r.ahead)
			}
			switch {
			case sent == n && (err != nil || !bytes.Equal(got, whole[:n])):
				t.Errorf("%d bytes: %d are read, %v", n, len(got), err)
			case sent < n && !errors.Is(err, io.ErrUnexpectedEOF) && (sent > 0 || !errors.Is(err, io.EOF)):
				t.Errorf("%d of %d bytes: %v", sent, n, err)
			}
		}
	}
}
