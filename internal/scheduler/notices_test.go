package scheduler

import "testing"

func TestAChangeWakesOnlyThoseThatWaitForIt(t *testing.T) {
	var n notices
	woken := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	one, stopOne := n.expect(claimKey("ns", "one"), volumeKey("v"))
	two, stopTwo := n.expect(claimKey("ns", "two"))
	n.notify(claimKey("ns", "one"))
	n.notify(claimKey("ns", "one")) // nobody has to read the first notice before
	if !woken(one) || woken(two) {
		t.Error("the claim's change woke another pod, or not its own")
	}
	n.notify(volumeKey("v"))
	if !woken(one) {
		t.Error("the volume's change is lost")
	}
	stopOne()
	stopTwo()
	n.notify(claimKey("ns", "one"))
	if woken(one) || len(n.waiting) != 0 {
		t.Errorf("still waiting: %v", n.waiting)
	}
}
