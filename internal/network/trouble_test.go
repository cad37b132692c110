package network

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestTroubleThatStaysIsToldOnceAndTriedLessOften(t *testing.T) {
	var tr trouble
	now := time.Now()
	one, two := errors.New("one"), errors.New("two")
	for i, step := range []struct {
		after time.Duration
		err   error
		pause time.Duration
		tell  bool
	}{
		{0, nil, 0, false},
		{0, one, time.Second, true},
		{time.Second, one, 2 * time.Second, false},
		{2 * time.Second, errors.New("one"), 4 * time.Second, false},
		{4 * time.Second, two, 8 * time.Second, true},
		{8 * time.Second, two, 10 * time.Second, false},
		{10 * time.Second, two, 10 * time.Second, false},
		{10 * time.Minute, two, 10 * time.Second, true},
		{10 * time.Second, nil, 0, false},
		{time.Second, two, time.Second, true},
	} {
		now = now.Add(step.after)
		if pause, tell := tr.next(step.err, now); pause != step.pause || tell != step.tell {
			t.Errorf("step %d: pause %s, told %v, want %s, %v", i, pause, tell, step.pause, step.tell)
		}
	}
}

func TestAnAddressOfAnotherMachineIsToldWithTheFlagThatSetsIt(t *testing.T) {
	if _, err := linkOf(netip.MustParseAddr("192.0.2.254")); err == nil || !strings.Contains(err.Error(), "set --advertise-address to an address of this machine") {
		t.Errorf("error %v", err)
	}
}
