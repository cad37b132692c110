package memo

import "testing"

func TestMemoDropsUnusedEntries(t *testing.T) {
	m := Memo[int, int]{Size: 4}
	m.Put(0, 0)
	for i := 1; i < 20; i++ {
		m.Put(i, i)
		if _, ok := m.Get(0); !ok {
			t.Fatalf("forgot a used entry at %d", i)
		}
	}
	if _, ok := m.Get(1); ok {
		t.Error("remembers an unused entry")
	}
}
