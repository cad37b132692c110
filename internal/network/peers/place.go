package peers

import (
	"slices"
	"strconv"
	"strings"
)

// held is a slice with the members that it holds or shall hold.
type held struct {
	number  int
	members []string
	changed bool
}

// place distributes the wanted members over the slices so that few slices change. It removes absent
// members where they are, and adds new ones to the fullest slices that have room. A slice without
// members stays in the result; the caller deletes it unless it is number 0, which shows that the
// group is published.
func place(have []held, want []string) []held {
	missing := map[string]bool{}
	for _, m := range want {
		missing[m] = true
	}
	out := make([]held, len(have))
	for i, h := range have {
		out[i].number = h.number
		for _, m := range h.members {
			if missing[m] {
				delete(missing, m)
				out[i].members = append(out[i].members, m)
			} else {
				out[i].changed = true // absent, or a second time
			}
		}
	}
	var added []string
	for m := range missing {
		added = append(added, m)
	}
	slices.Sort(added)
	order := make([]int, len(out))
	for i := range out {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(out[b].members) - len(out[a].members) })
	for _, i := range order {
		n := min(len(added), sliceSize-len(out[i].members))
		if n > 0 {
			out[i].members, out[i].changed, added = append(out[i].members, added[:n]...), true, added[n:]
		}
	}
	for number := 0; len(added) > 0 || number == 0; number++ {
		if slices.ContainsFunc(out, func(h held) bool { return h.number == number }) {
			continue
		}
		n := min(len(added), sliceSize)
		out, added = append(out, held{number, slices.Clone(added[:n]), true}), added[n:]
	}
	return out
}

// numberOf returns the number at the end of a slice's name, or -1.
func numberOf(name string) int {
	_, text, _ := strings.Cut(name, "-")
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}
