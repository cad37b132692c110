package loadbalancer

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/config"
)

// pool is a set of ranges. The zero namespaces and selector match all Services.
type pool struct {
	name       string
	ranges     []config.AddressRange
	namespaces []string
	selector   labels.Selector
}

func (p pool) serves(s *corev1.Service) bool {
	return (len(p.namespaces) == 0 || slices.Contains(p.namespaces, s.Namespace)) &&
		(p.selector == nil || p.selector.Matches(labels.Set(s.Labels)))
}

func (p pool) contains(a netip.Addr) bool {
	return slices.ContainsFunc(p.ranges, func(r config.AddressRange) bool { return r.Contains(a) })
}

// free returns the lowest address of the family that is not taken.
func (p pool) free(v4 bool, taken func(netip.Addr) bool) (netip.Addr, bool) {
	for _, r := range p.ranges {
		if r.First.Is4() != v4 {
			continue
		}
		for a := r.First; a.IsValid() && r.Contains(a); a = a.Next() {
			if !taken(a) {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}

// size returns the number of addresses of a family as text: an IPv6 pool exceeds integers.
func (p pool) size(v4 bool) string {
	sum := new(big.Int)
	for _, r := range p.ranges {
		if r.First.Is4() == v4 {
			first, last := new(big.Int).SetBytes(r.First.AsSlice()), new(big.Int).SetBytes(r.Last.AsSlice())
			sum.Add(sum, last.Sub(last, first).Add(last, big.NewInt(1)))
		}
	}
	return sum.String()
}

// parseRanges reads ranges, and merges overlapping ones so that size counts each address once.
func parseRanges(texts []string) ([]config.AddressRange, error) {
	var all []config.AddressRange
	for _, text := range texts {
		r, err := config.ParseAddressRange(text)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b config.AddressRange) int { return a.First.Compare(b.First) })
	var out []config.AddressRange
	for _, r := range all {
		if n := len(out) - 1; n >= 0 && out[n].Contains(r.First) {
			if out[n].Last.Less(r.Last) {
				out[n].Last = r.Last
			}
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

// poolSpec is the spec of a LoadBalancerPool.
type poolSpec struct {
	Addresses       []string              `json:"addresses"`
	Namespaces      []string              `json:"namespaces,omitempty"`
	ServiceSelector *metav1.LabelSelector `json:"serviceSelector,omitempty"`
}

// maxRanges bounds the ranges of one pool.
const maxRanges = 256

// poolOf reads a LoadBalancerPool.
func poolOf(u *unstructured.Unstructured) (pool, error) {
	content, _, err := unstructured.NestedMap(u.Object, "spec")
	if err != nil {
		return pool{}, fmt.Errorf("spec: %w", err)
	}
	var spec poolSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &spec); err != nil {
		return pool{}, fmt.Errorf("spec: %w", err)
	}
	if n := len(spec.Addresses); n == 0 || n > maxRanges {
		return pool{}, fmt.Errorf("spec.addresses: %d ranges, allowed are 1 to %d", n, maxRanges)
	}
	p := pool{name: u.GetName(), namespaces: spec.Namespaces}
	if p.ranges, err = parseRanges(spec.Addresses); err != nil {
		return pool{}, fmt.Errorf("spec.addresses: %w", err)
	}
	if spec.ServiceSelector != nil {
		if p.selector, err = metav1.LabelSelectorAsSelector(spec.ServiceSelector); err != nil {
			return pool{}, fmt.Errorf("spec.serviceSelector: %w", err)
		}
	}
	return p, nil
}

func poolNames(pools []pool) string {
	var names []string
	for _, p := range pools {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}
