package traffic

// counts turns the kernel's counters into numbers of connections.
type counts map[flow]*tally

type tally struct {
	tried, passed   total
	before          uint64 // tried, at the previous reading
	allowed, denied uint64 // told already
}

// total is a counter that survives that the kernel has forgotten a flow and starts from zero.
type total struct{ sum, last uint64 }

func (t *total) read(now uint64) {
	if now < t.last {
		t.last = 0
	}
	t.sum += now - t.last
	t.last = now
}

// news is a number of new connections of a flow.
type news struct {
	allowed, denied uint64
}

// read takes a reading of both stages. tried must have been read before passed. It returns the
// connections since the last reading.
//
// A packet that one stage has counted may still be on its way to the other. A connection is
// therefore denied if it has not passed by the reading after the one that shows the attempt.
func (c counts) read(triedNow, passedNow map[flow]uint64) map[flow]news {
	out := map[flow]news{}
	for k := range triedNow {
		if c[k] == nil {
			c[k] = &tally{}
		}
	}
	for k, n := range c {
		n.tried.read(triedNow[k])
		n.passed.read(passedNow[k])
		var d news
		d.allowed = n.passed.sum - n.allowed
		if n.before > n.passed.sum+n.denied {
			d.denied = n.before - n.passed.sum - n.denied
		}
		n.allowed += d.allowed
		n.denied += d.denied
		n.before = n.tried.sum
		if d != (news{}) {
			out[k] = d
		}
		if _, known := triedNow[k]; !known && n.before <= n.passed.sum+n.denied {
			delete(c, k)
		}
	}
	return out
}
