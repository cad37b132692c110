package autoscale

import (
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// downStabilization is the default stabilization window for scaling down.
const downStabilization = 300 * time.Second

// history records the recommendations and changes of one autoscaler, as far back as its windows and
// periods reach.
type history struct {
	recommended []moment // numbers of pods
	up, down    []moment // numbers of pods added, removed
}

type moment struct {
	at    time.Time
	count int32
}

// rules are the scaling rules of a behavior, with the defaults filled in.
type rules struct {
	up, down autoscalingv2.HPAScalingRules
}

func rulesOf(b *autoscalingv2.HorizontalPodAutoscalerBehavior) rules {
	most := autoscalingv2.MaxChangePolicySelect
	now, later := int32(0), int32(downStabilization/time.Second)
	r := rules{
		up: autoscalingv2.HPAScalingRules{SelectPolicy: &most, StabilizationWindowSeconds: &now, Policies: []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}, {Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}}},
		down: autoscalingv2.HPAScalingRules{SelectPolicy: &most, StabilizationWindowSeconds: &later, Policies: []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}}},
	}
	if b != nil {
		fill(&r.up, b.ScaleUp)
		fill(&r.down, b.ScaleDown)
	}
	return r
}

func fill(r *autoscalingv2.HPAScalingRules, set *autoscalingv2.HPAScalingRules) {
	if set == nil {
		return
	}
	if set.SelectPolicy != nil {
		r.SelectPolicy = set.SelectPolicy
	}
	if set.StabilizationWindowSeconds != nil {
		r.StabilizationWindowSeconds = set.StabilizationWindowSeconds
	}
	if set.Policies != nil {
		r.Policies = set.Policies
	}
}

// decision is the number of pods to run, and the reason if it differs from what the metrics demand.
type decision struct {
	replicas   int32
	stabilized string // reason of AbleToScale if a stabilization window holds the number
	limited    string // reason of ScalingLimited; empty if nothing limits
	message    string // message of ScalingLimited
}

// decide turns the number that the metrics demand into the number of pods to run. It applies the
// stabilization windows, then the scaling policies, then the bounds. It records the recommendation
// in the history.
func (h *history) decide(r rules, current, wanted, least, most int32, now time.Time) decision {
	var d decision
	d.replicas = h.stabilize(r, current, wanted, now)
	if d.replicas > wanted {
		d.stabilized = "ScaleDownStabilized"
	} else if d.replicas < wanted {
		d.stabilized = "ScaleUpStabilized"
	}
	switch {
	case d.replicas > current:
		limit := max(h.ceiling(r.up, current, now), current)
		if bound := min(limit, most); d.replicas > bound {
			if d.replicas = bound; bound == most {
				d.limited, d.message = "TooManyReplicas", "the desired replica count is more than the maximum replica count"
			} else {
				d.limited, d.message = "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"
			}
		}
	case d.replicas < current:
		limit := min(h.floor(r.down, current, now), current)
		if bound := max(limit, least); d.replicas < bound {
			if d.replicas = bound; bound == least {
				d.limited, d.message = "TooFewReplicas", "the desired replica count is less than the minimum replica count"
			} else {
				d.limited, d.message = "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"
			}
		}
	}
	switch {
	case d.replicas > most:
		d.replicas, d.limited, d.message = most, "TooManyReplicas", "the desired replica count is more than the maximum replica count"
	case d.replicas < least:
		d.replicas, d.limited, d.message = least, "TooFewReplicas", "the desired replica count is less than the minimum replica count"
	}
	return d
}

// stabilize limits scaling up to the lowest recommendation of the scale-up window, and scaling down
// to the highest recommendation of the scale-down window.
func (h *history) stabilize(r rules, current, wanted int32, now time.Time) int32 {
	h.recommended = append(h.recommended, moment{now, wanted})
	up, down := seconds(*r.up.StabilizationWindowSeconds), seconds(*r.down.StabilizationWindowSeconds)
	h.recommended = slices.DeleteFunc(h.recommended, func(m moment) bool { return now.Sub(m.at) > max(up, down) })
	lowest, highest := wanted, wanted
	for _, m := range h.recommended {
		if age := now.Sub(m.at); age < up {
			lowest = min(lowest, m.count)
		}
		if age := now.Sub(m.at); age < down {
			highest = max(highest, m.count)
		}
	}
	return min(max(current, lowest), highest)
}

// changed records a change of the number of pods.
func (h *history) changed(r rules, from, to int32, now time.Time) {
	longest := time.Duration(0)
	for _, p := range append(slices.Clone(r.up.Policies), r.down.Policies...) {
		longest = max(longest, seconds(p.PeriodSeconds))
	}
	old := func(m moment) bool { return now.Sub(m.at) > longest }
	h.up, h.down = slices.DeleteFunc(h.up, old), slices.DeleteFunc(h.down, old)
	if to > from {
		h.up = append(h.up, moment{now, to - from})
	} else if to < from {
		h.down = append(h.down, moment{now, from - to})
	}
}

// began returns the number of pods at the beginning of a policy's period.
func (h *history) began(current, period int32, now time.Time) int32 {
	within := func(list []moment) (sum int32) {
		for _, m := range list {
			if now.Sub(m.at) < seconds(period) {
				sum += m.count
			}
		}
		return sum
	}
	return current - within(h.up) + within(h.down)
}

// ceiling returns the most pods that the scale-up policies allow now.
func (h *history) ceiling(r autoscalingv2.HPAScalingRules, current int32, now time.Time) int32 {
	if *r.SelectPolicy == autoscalingv2.DisabledPolicySelect {
		return current
	}
	var allowed []int32
	for _, p := range r.Policies {
		began := h.began(current, p.PeriodSeconds, now)
		if p.Type == autoscalingv2.PodsScalingPolicy {
			allowed = append(allowed, began+p.Value)
		} else {
			allowed = append(allowed, int32(math.Ceil(float64(began)*(1+float64(p.Value)/100))))
		}
	}
	if *r.SelectPolicy == autoscalingv2.MinChangePolicySelect {
		return slices.Min(allowed)
	}
	return slices.Max(allowed)
}

// floor returns the fewest pods that the scale-down policies allow now.
func (h *history) floor(r autoscalingv2.HPAScalingRules, current int32, now time.Time) int32 {
	if *r.SelectPolicy == autoscalingv2.DisabledPolicySelect {
		return current
	}
	var allowed []int32
	for _, p := range r.Policies {
		began := h.began(current, p.PeriodSeconds, now)
		if p.Type == autoscalingv2.PodsScalingPolicy {
			allowed = append(allowed, began-p.Value)
		} else {
			allowed = append(allowed, int32(float64(began)*(1-float64(p.Value)/100)))
		}
	}
	if *r.SelectPolicy == autoscalingv2.MinChangePolicySelect {
		return slices.Max(allowed)
	}
	return slices.Min(allowed)
}

func seconds(s int32) time.Duration { return time.Duration(s) * time.Second }
