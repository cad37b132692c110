package registry

import (
	"testing"
)

func TestWatchEventSizesUseUpstreamsBuckets(t *testing.T) {
	for size, want := range map[int]int{0: 0, 1: 0, 1024: 0, 1025: 1, 2048: 1, 2049: 2, 131072: 7, 131073: 8, 1 << 30: 8} {
		if got := watchBucket(size); got != want {
			t.Errorf("%d bytes are in bucket %d, want %d", size, got, want)
		}
	}
}
