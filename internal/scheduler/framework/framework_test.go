package framework

import "testing"

func TestEventsHaveUniqueNames(t *testing.T) {
	seen := map[string]Events{}
	for e := NodeAdded; e <= GroupChanged; e <<= 1 {
		name := e.Name()
		if other, ok := seen[name]; ok || name == "Unknown" {
			t.Errorf("event %b is called %s, as %b is", e, name, other)
		}
		seen[name] = e
	}
	for e, want := range map[Events]string{0: "Unknown", GroupChanged << 1: "Unknown", NodeTaints | NodeDeleted: "NodeUpdateNodeTaint"} {
		if got := e.Name(); got != want {
			t.Errorf("%b is called %s, expected %s", e, got, want)
		}
	}
}
