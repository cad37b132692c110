package registry

import (
	"bytes"
	"hash/crc32"
	"testing"
)

func TestJoinedChecksumIsThatOfTheWhole(t *testing.T) {
	whole := bytes.Repeat([]byte("a list of pods, and of others"), 100)
	for _, at := range []int{0, 1, 7, 1000, len(whole) - 1, len(whole)} {
		first, second := crc32.ChecksumIEEE(whole[:at]), crc32.ChecksumIEEE(whole[at:])
		if got := combineCRC(first, second, len(whole)-at); got != crc32.ChecksumIEEE(whole) {
			t.Errorf("cut at %d: %x", at, got)
		}
	}
}
