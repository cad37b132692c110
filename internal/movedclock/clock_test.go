package movedclock

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestATimerFiresWhenTheClockIsMovedOverIt(t *testing.T) {
	var c Clock
	before := c.Now()
	timer := c.NewTimer(24 * time.Hour)
	c.Advance(25 * time.Hour)
	if at := <-timer.C(); at.Sub(before) < 25*time.Hour {
		t.Errorf("fired %s after the start", at.Sub(before))
	}
	if timer.Stop() {
		t.Error("a timer that has fired was still to fire")
	}
}

func TestATimerFiresWithoutAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		c.Advance(time.Hour)
		began := time.Now()
		<-c.After(time.Minute)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("fired after %s", took)
		}
	})
}

func TestAMoveShortensTheRemainingTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		began := time.Now()
		timer := c.NewTimer(time.Hour)
		c.Advance(40 * time.Minute)
		<-timer.C()
		if took := time.Since(began); took != 20*time.Minute {
			t.Errorf("fired after %s", took)
		}
	})
}

func TestATickerTicksOnceAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		ticks := c.NewTicker(time.Minute)
		defer ticks.Stop()
		c.Advance(time.Hour)
		<-ticks.C()
		began := time.Now()
		<-ticks.C()
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the next tick came after %s", took)
		}
	})
}

func TestAStoppedTimerDoesNotFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		timer := c.NewTimer(time.Minute)
		if !timer.Stop() {
			t.Error("the timer had fired")
		}
		c.Advance(time.Hour)
		synctest.Wait()
		select {
		case <-timer.C():
			t.Error("fired")
		default:
		}
		timer.Reset(time.Minute)
		<-timer.C()
	})
}
