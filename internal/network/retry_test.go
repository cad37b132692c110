package network

import (
	"errors"
	"testing"
	"time"
)

func TestRepeatedErrorsAreLoggedOnceAndRetriedLessOften(t *testing.T) {
	var tr retryState
	now := time.Now()
	one, two := errors.New("one"), errors.New("two")
	for i, step := range []struct {
		after time.Duration
		err   error
		pause time.Duration
		log   bool
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
		if pause, log := tr.next(step.err, now); pause != step.pause || log != step.log {
			t.Errorf("step %d: pause %s, log %v, want %s, %v", i, pause, log, step.pause, step.log)
		}
	}
}
