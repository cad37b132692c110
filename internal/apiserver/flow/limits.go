package flow

import (
	"math"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

// shapes divides the server's seats among the levels by their shares.
func shapes(levels []*flowcontrolv1.PriorityLevelConfiguration, total int) map[string]levelShape {
	sum := int32(0)
	for _, l := range levels {
		sum += shares(l)
	}
	out := make(map[string]levelShape, len(levels))
	for _, l := range levels {
		var s levelShape
		s.nominal = int(math.Ceil(float64(total) * float64(shares(l)) / float64(max(sum, 1))))
		lendable, borrow := int32(0), (*int32)(nil)
		switch l.Spec.Type {
		case flowcontrolv1.PriorityLevelEnablementExempt:
			s.exempt = true
			if e := l.Spec.Exempt; e != nil && e.LendablePercent != nil {
				lendable = *e.LendablePercent
			}
		default:
			c := l.Spec.Limited
			if c == nil {
				continue
			}
			if c.LendablePercent != nil {
				lendable = *c.LendablePercent
			}
			borrow = c.BorrowingLimitPercent
			if q := c.LimitResponse.Queuing; c.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue && q != nil {
				s.queues, s.handSize, s.queueLength = int(q.Queues), int(q.HandSize), int(q.QueueLengthLimit)
			}
		}
		lent := int(math.Round(float64(s.nominal) * float64(lendable) / 100))
		s.lower, s.upper = s.nominal-lent, s.nominal+total
		if borrow != nil {
			s.upper = s.nominal + int(math.Round(float64(s.nominal)*float64(*borrow)/100))
		}
		out[l.Name] = s
	}
	return out
}

// defaultShares are the shares of a level without a value (API reference).
const defaultShares = 30

func shares(l *flowcontrolv1.PriorityLevelConfiguration) int32 {
	switch {
	case l.Spec.Exempt != nil && l.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt:
		if n := l.Spec.Exempt.NominalConcurrencyShares; n != nil {
			return *n
		}
	case l.Spec.Limited != nil:
		if n := l.Spec.Limited.NominalConcurrencyShares; n != nil {
			return *n
		}
		return defaultShares
	}
	return 0
}

// levelDemand is a level's demand for seats.
type levelDemand struct {
	shape    levelShape
	highest  int
	smoothed float64
}

// divide adjusts the seats of the levels that are not exempt to their demand. Levels borrow the
// seats that others lend because they do not need them, in proportion to their demand (KEP-1040,
// "Dispatching").
func divide(levels []levelDemand, total int) []int {
	least := make([]float64, len(levels))
	target := make([]float64, len(levels))
	spare := float64(total)
	for i, l := range levels {
		if l.shape.exempt {
			continue
		}
		least[i] = max(float64(l.shape.lower), min(float64(l.shape.nominal), float64(l.highest)))
		target[i] = max(least[i], l.smoothed, 1)
		spare -= least[i]
	}
	given := func(i int, fraction float64) float64 {
		return min(float64(levels[i].shape.upper), max(least[i], fraction*target[i]))
	}
	// Find the largest fraction of the targets for which the seats suffice.
	low, high := 0.0, float64(total)
	for range 50 {
		middle := (low + high) / 2
		sum := 0.0
		for i, l := range levels {
			if !l.shape.exempt {
				sum += given(i, middle)
			}
		}
		if sum > float64(total) {
			high = middle
		} else {
			low = middle
		}
	}
	out := make([]int, len(levels))
	for i, l := range levels {
		if l.shape.exempt {
			out[i] = max(1, l.shape.nominal)
			continue
		}
		out[i] = max(1, int(math.Round(given(i, low))))
	}
	return out
}
