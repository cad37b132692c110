package cache

import (
	"testing"
	"time"
)

func TestTheLogCountsItsResizes(t *testing.T) {
	const most = 4096
	var l eventLog
	began := time.Unix(1, 0)
	for i := range most {
		l.append(&event{revision: int64(i + 1), at: began})
	}
	if len(l.ring) < most || l.grown == 0 || l.shrunk != 0 {
		t.Errorf("room for %d: grown %d times, shrunk %d times", len(l.ring), l.grown, l.shrunk)
	}
	room, grown := len(l.ring), l.grown
	l.trim(began.Add(24 * time.Hour))
	if len(l.ring) >= room || l.grown != grown || l.shrunk != 1 {
		t.Errorf("room for %d of %d: grown %d times, shrunk %d times", len(l.ring), room, l.grown, l.shrunk)
	}
}
