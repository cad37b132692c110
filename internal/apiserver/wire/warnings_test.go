package wire

import (
	"fmt"
	"strings"
	"testing"
)

// Upstream's answers with the same warnings.
func TestWarningsAreLimitedInTotal(t *testing.T) {
	repeat := func(length, times int) (out []int) {
		for range times {
			out = append(out, length)
		}
		return out
	}
	for _, tt := range []struct {
		name          string
		lengths, want []int
	}{
		{"as many as fit", []int{4096}, []int{4096}},
		{"two that fit", []int{4000, 96}, []int{4000, 96}},
		{"one that is too long", []int{4097}, []int{256}},
		{"two that are too long together", []int{4000, 97}, []int{256, 97}},
		{"small ones around a long one", []int{100, 4000, 20}, []int{100, 256, 20}},
		{"more than fit when they are cut", repeat(300, 20), repeat(256, 16)},
		{"more than fit although none is cut", repeat(217, 200), repeat(217, 19)},
		{"the last one may exceed the limit", append(repeat(300, 15), 156, 300, 20), append(repeat(256, 15), 156, 256)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w Warnings
			for i, length := range tt.lengths {
				text := fmt.Sprintf("%03d", i)
				w.Add(text + strings.Repeat("é", length-len(text)))
				w.Add(text + strings.Repeat("é", length-len(text)))
			}
			var got []int
			for _, header := range w.Headers() {
				got = append(got, len([]rune(header))-len(`299 - ""`))
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("they have %v runes, want %v", got, tt.want)
			}
		})
	}
	var w Warnings
	if w.Add("not\x00printable") || w.Headers() != nil {
		t.Error("an unprintable warning is sent")
	}
}
