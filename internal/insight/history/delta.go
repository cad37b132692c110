package history

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/knarr-project/knarr/internal/insight/segments"
)

// A delta makes a state from an older one of the same key. It is a list of steps: how many bytes to
// copy from the older state, how many of it to leave out after that, and bytes to add. Most updates
// change some bytes, so a delta costs less to make and to compress than the state.
const (
	// deltaAlike is the number of equal bytes after which a difference has ended.
	deltaAlike = 8
	// deltaReach is the length of the differences that are looked for. One that is longer lasts to
	// the equal end of both states.
	deltaReach = 64
	// maxDeltaSteps bounds the time for states that are not alike.
	maxDeltaSteps = 64
)

// appendDelta appends a delta that makes now from old.
func appendDelta(buf, old, now []byte) []byte {
	for step := 0; len(now) > 0; step++ {
		n := alikePrefix(old, now)
		left, added := difference(old[n:], now[n:], step < maxDeltaSteps)
		buf = binary.AppendUvarint(buf, uint64(n))
		buf = binary.AppendUvarint(buf, uint64(left))
		buf = appendBytes(buf, now[n:n+added])
		old, now = old[n+left:], now[n+added:]
	}
	return buf
}

// alikePrefix returns the length of the equal begin.
func alikePrefix(a, b []byte) (n int) {
	for ; n+8 <= len(a) && n+8 <= len(b); n += 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
	}
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// difference returns how many bytes of each are before they are alike again.
func difference(old, now []byte, search bool) (left, added int) {
	lastOld, lastNow := len(old)-deltaAlike, len(now)-deltaAlike
	for longer := 1; search && longer <= deltaReach && longer <= max(lastOld, lastNow); longer++ {
		var fromOld, fromNow uint64
		if longer <= lastOld {
			fromOld = binary.LittleEndian.Uint64(old[longer:])
		}
		if longer <= lastNow {
			fromNow = binary.LittleEndian.Uint64(now[longer:])
		}
		for shorter := longer; shorter >= 0; shorter-- { // the same length first
			if longer <= lastOld && shorter <= lastNow && fromOld == binary.LittleEndian.Uint64(now[shorter:]) {
				return longer, shorter
			}
			if longer <= lastNow && shorter <= lastOld && fromNow == binary.LittleEndian.Uint64(old[shorter:]) {
				return shorter, longer
			}
		}
	}
	tail := 0
	for tail < len(old) && tail < len(now) && old[len(old)-1-tail] == now[len(now)-1-tail] {
		tail++
	}
	return len(old) - tail, len(now) - tail
}

// applyDelta makes a state from an older one.
func applyDelta(old, delta []byte) (state []byte, err error) {
	d := segments.Decoder{Buf: delta}
	for len(d.Buf) > 0 {
		n, err := d.Uvarint()
		if err != nil {
			return nil, err
		}
		left, err := d.Uvarint()
		if err != nil {
			return nil, err
		}
		added, err := d.Bytes(maxState)
		if err != nil {
			return nil, err
		}
		if rest := uint64(len(old)); n > rest || left > rest-n || uint64(len(state)+len(added))+n > maxState {
			return nil, fmt.Errorf("%w: a delta of %d and %d bytes", segments.ErrMalformed, n, left)
		}
		state = append(append(state, old[:n]...), added...)
		old = old[n+left:]
	}
	return state, nil
}
