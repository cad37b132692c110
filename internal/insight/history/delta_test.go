package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestDeltasMakeTheSameStates(t *testing.T) {
	text := strings.Repeat("the quick brown fox jumps over the lazy dog; ", 40)
	for name, c := range map[string]struct {
		old, now string
		most     int // bytes of the delta
	}{
		"equal":                   {text, text, 8},
		"a number":                {text + "a:1" + text, text + "a:2" + text, 16},
		"a longer number":         {text + "a:1" + text, text + "a:1000" + text, 16},
		"a field is gone":         {text + "field: value" + text, text + text, 16},
		"much is added":           {text, text + strings.Repeat("0123456789", 50), 520},
		"much is added within it": {text + "end of it", text + strings.Repeat("0123456789", 50) + "end of it", 520},
		"nothing before":          {"", "state", 8},
		"nothing after":           {"state", "", 0},
	} {
		delta := appendDelta(nil, []byte(c.old), []byte(c.now))
		got, err := applyDelta([]byte(c.old), delta)
		if err != nil || string(got) != c.now {
			t.Errorf("%s: %d bytes instead of %d, %v", name, len(got), len(c.now), err)
		}
		if len(delta) > c.most {
			t.Errorf("%s: a delta of %d bytes", name, len(delta))
		}
	}
}

func FuzzDelta(f *testing.F) {
	f.Add([]byte("one two three four five"), []byte("one 2 three four five six"))
	f.Add([]byte{}, []byte{3, 0, 1, 'x'})
	f.Fuzz(func(t *testing.T, old, now []byte) {
		_, _ = applyDelta(old, now) // of foreign bytes
		got, err := applyDelta(old, appendDelta(nil, old, now))
		if err != nil || !bytes.Equal(got, now) {
			t.Fatalf("%q instead of %q, %v", got, now, err)
		}
	})
}

func BenchmarkDelta(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	var old []byte
	for len(old) < 3000 {
		old = fmt.Appendf(old, "field-%d: {value: %d}\n", len(old)%400, random.IntN(1000))
	}
	now := bytes.Replace(bytes.Replace(old, []byte("field-1"), []byte("FIELD-1"), 3), []byte("value: 9"), []byte("value: 100"), 2)
	b.ReportAllocs()
	b.SetBytes(int64(len(now)))
	var buf []byte
	for b.Loop() {
		buf = appendDelta(buf[:0], old, now)
	}
	b.ReportMetric(float64(len(buf)), "B/delta")
}
