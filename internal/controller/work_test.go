package controller

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestAnIdleQueueDoesNotWakeUp(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Now())
	ticker := calmClock{fake}.NewTicker(10 * time.Second)
	defer ticker.Stop()
	fake.Step(59 * time.Minute)
	select {
	case <-ticker.C():
		t.Error("it is woken within the hour")
	default:
	}
	fake.Step(time.Minute)
	<-ticker.C()
}
