package machine

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// MaxCPU is the highest id of a CPU (the kernel's limit is 8192 CPUs).
const MaxCPU = 8191

// CPUSet is an immutable set of CPU ids from 0 to MaxCPU. The zero value is empty.
type CPUSet struct {
	words []uint64 // the last word is not 0
}

// CPUs returns the set of these ids. It panics if an id is out of range.
func CPUs(ids ...int) CPUSet {
	var s CPUSet
	for _, id := range ids {
		s.set(id)
	}
	return s
}

// set adds an id to a set that is under construction.
func (s *CPUSet) set(id int) {
	if id < 0 || id > MaxCPU {
		panic(fmt.Sprintf("machine: CPU %d is out of range", id))
	}
	for len(s.words) <= id/64 {
		s.words = append(s.words, 0)
	}
	s.words[id/64] |= 1 << (id % 64)
}

// ParseCPUs parses a list in the kernel's format, such as "0-3,8". An empty list is an empty set.
func ParseCPUs(list string) (CPUSet, error) {
	var s CPUSet
	list = strings.TrimSpace(list)
	if list == "" {
		return s, nil
	}
	for _, part := range strings.Split(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		low, err := cpuID(first)
		high := low
		if err == nil && isRange {
			high, err = cpuID(last)
		}
		if err != nil {
			return CPUSet{}, fmt.Errorf("CPU list %.100q: %w", list, err)
		}
		if high < low {
			return CPUSet{}, fmt.Errorf("CPU list %.100q: the range %s ends before it begins", list, part)
		}
		for id := low; id <= high; id++ {
			s.set(id)
		}
	}
	return s, nil
}

func cpuID(text string) (int, error) {
	id, err := strconv.ParseUint(text, 10, 16)
	if err != nil || id > MaxCPU {
		return 0, fmt.Errorf("%.20q is not a CPU from 0 to %d", text, MaxCPU)
	}
	return int(id), nil
}

// Len is the number of CPUs.
func (s CPUSet) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Empty reports whether the set has no CPU.
func (s CPUSet) Empty() bool { return len(s.words) == 0 }

// Has reports whether the CPU is in the set.
func (s CPUSet) Has(id int) bool {
	return id >= 0 && id/64 < len(s.words) && s.words[id/64]&(1<<(id%64)) != 0
}

// List returns the ids in ascending order.
func (s CPUSet) List() []int {
	ids := make([]int, 0, s.Len())
	for i, w := range s.words {
		for ; w != 0; w &= w - 1 {
			ids = append(ids, i*64+bits.TrailingZeros64(w))
		}
	}
	return ids
}

// First is the lowest id, or -1.
func (s CPUSet) First() int {
	for i, w := range s.words {
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

func (s CPUSet) word(i int) uint64 {
	if i < len(s.words) {
		return s.words[i]
	}
	return 0
}

func combine(a, b CPUSet, op func(x, y uint64) uint64) CPUSet {
	out := CPUSet{words: make([]uint64, max(len(a.words), len(b.words)))}
	for i := range out.words {
		out.words[i] = op(a.word(i), b.word(i))
	}
	for n := len(out.words); n > 0 && out.words[n-1] == 0; n-- {
		out.words = out.words[:n-1]
	}
	return out
}

// Union returns the CPUs of either set.
func (s CPUSet) Union(o CPUSet) CPUSet {
	return combine(s, o, func(x, y uint64) uint64 { return x | y })
}

// Minus returns the CPUs of s that o does not have.
func (s CPUSet) Minus(o CPUSet) CPUSet {
	return combine(s, o, func(x, y uint64) uint64 { return x &^ y })
}

// And returns the CPUs of both sets.
func (s CPUSet) And(o CPUSet) CPUSet {
	return combine(s, o, func(x, y uint64) uint64 { return x & y })
}

// Within reports whether o has all CPUs of s.
func (s CPUSet) Within(o CPUSet) bool { return s.Minus(o).Empty() }

// Equal reports whether both sets have the same CPUs.
func (s CPUSet) Equal(o CPUSet) bool { return s.Within(o) && o.Within(s) }

// String formats the set in the kernel's format, which ParseCPUs reads.
func (s CPUSet) String() string {
	var b strings.Builder
	ids := s.List()
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ids[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(ids[j]))
		}
		i = j + 1
	}
	return b.String()
}
