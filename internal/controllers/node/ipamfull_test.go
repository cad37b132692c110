package node

import (
	"net/netip"
	"testing"
)

func TestAFullRangeIsSearchedAgainAfterADeletion(t *testing.T) {
	r, err := newRange("10.0.0.0/30", 32)
	if err != nil {
		t.Fatal(err)
	}
	taken, asked := map[netip.Prefix]bool{}, 0
	isTaken := func(p netip.Prefix) bool { asked++; return taken[p] }
	for range 4 {
		p, ok := r.free(0, isTaken)
		if !ok || taken[p] {
			t.Fatalf("%v, %v", p, ok)
		}
		taken[p] = true
	}
	asked = 0
	for range 10 {
		if p, ok := r.free(0, isTaken); ok {
			t.Fatalf("%s is given out twice", p)
		}
	}
	if asked != 4 {
		t.Errorf("looked at %d parts, want 4", asked)
	}
	freed := netip.MustParsePrefix("10.0.0.2/32")
	delete(taken, freed)
	if p, ok := r.free(1, isTaken); !ok || p != freed {
		t.Errorf("after a deletion: %v, %v", p, ok)
	}
}
