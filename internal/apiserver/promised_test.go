package apiserver

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// thirsty records the most bytes that a reader was asked for beyond those it had delivered.
type thirsty struct {
	io.Reader
	given, ahead int
}

// Read implements io.Reader.
func (a *thirsty) Read(p []byte) (int, error) {
	a.ahead = max(a.ahead, len(p)-3*a.given)
	n, err := a.Reader.Read(p)
	a.given += n
	return n, err
}

func TestMemoryForABodyIsAllocatedAsItArrives(t *testing.T) {
	whole := bytes.Repeat([]byte("0123456789abcdef"), maxBody/16)
	for _, n := range []int{0, 1, maxPromised - 1, maxPromised, maxPromised + 1, 4 * maxPromised, 4*maxPromised + 1, maxBody} {
		for _, sent := range []int{n, n / 2, n - 1, min(n, maxPromised), 0} {
			if sent < 0 {
				continue
			}
			r := &thirsty{Reader: bytes.NewReader(whole[:sent])}
			got, err := readPromised(r, n)
			if r.ahead > maxPromised {
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
