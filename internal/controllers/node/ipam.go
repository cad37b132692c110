package node

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// IPAM gives each node a part of the pod range, if there is one, in spec.podCIDR and spec.podCIDRs.
var IPAM = controller.Starter{Name: "node-ipam-controller", Account: "node-controller", EventSource: "cidrAllocator", Run: runIPAM}

const byPodCIDR = "pod-cidr"

// maxNodeBits limits the number of parts of a range to 2^16, as upstream does.
const maxNodeBits = 16

// ipam remembers only where to search next. It reads the taken parts from the nodes, and its View
// contains its own last write.
type ipam struct {
	env     controller.Env
	nodes   client.ViewOf[*corev1.Node]
	ranges  []*cidrRange
	service netip.Prefix
	// freed counts the deletions of nodes with parts.
	freed atomic.Int64
}

// cidrRange is the pod range of one IP family, divided into parts of one size.
type cidrRange struct {
	whole    netip.Prefix
	partBits int
	next     int64 // index at which the search starts
	// full is set when all parts were taken at the time of fullAt deletions. A search would visit
	// each part, and each node beyond the range would repeat it.
	full   bool
	fullAt int64
}

func runIPAM(ctx context.Context, env controller.Env) error {
	if env.Config.PodCIDR == "" {
		<-ctx.Done()
		return nil
	}
	nodes, err := client.Open[*corev1.Node](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open nodes: %w", err)
	}
	c := &ipam{env: env, nodes: nodes}
	for _, text := range strings.Split(env.Config.PodCIDR, ",") {
		r, err := newRange(text, env.Config.NodeCIDRMaskSize)
		if err != nil {
			return err
		}
		c.ranges = append(c.ranges, r)
	}
	if p, err := netip.ParsePrefix(strings.Split(env.Config.ServiceCIDR, ",")[0]); err == nil {
		c.service = p
	}
	nodes.AddIndex(byPodCIDR, func(n *corev1.Node) []string {
		if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "" {
			return []string{n.Spec.PodCIDR}
		}
		return n.Spec.PodCIDRs
	})
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "node-ipam-controller",
		Inputs: []controller.Input{controller.On(nodes, func(e client.TypedEvent[*corev1.Node]) []controller.Key {
			if e.Type == client.Deleted {
				return c.release(e.Object)
			}
			if e.Object.Spec.PodCIDR != "" {
				return nil
			}
			return []controller.Key{{Name: e.Object.Name}}
		})},
		Reconcile: c.reconcile, // one worker, so that no part is given out twice
	}
	return loop.Run(ctx)
}

// release notes that the parts of a deleted node are free, and returns the nodes without parts.
func (c *ipam) release(deleted *corev1.Node) (waiting []controller.Key) {
	if deleted.Spec.PodCIDR == "" {
		return nil
	}
	c.freed.Add(1)
	for _, n := range c.nodes.List("", nil) {
		if n.Spec.PodCIDR == "" {
			waiting = append(waiting, controller.KeyOf(n))
		}
	}
	return waiting
}

func newRange(text string, maskSize int) (*cidrRange, error) {
	whole, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("pod range %q: %w", text, err)
	}
	whole = whole.Masked()
	if whole.Addr().Is6() {
		maskSize = 64
	} else if maskSize == 0 {
		maskSize = 24
	}
	if maskSize < whole.Bits() || maskSize-whole.Bits() > maxNodeBits {
		return nil, fmt.Errorf("pod range %s cannot be divided into parts of /%d: "+
			"a part must be smaller than the range, by at most %d bits", whole, maskSize, maxNodeBits)
	}
	return &cidrRange{whole: whole, partBits: maskSize}, nil
}

// part returns the i-th part of the range.
func (r *cidrRange) part(i int64) netip.Prefix {
	address := new(big.Int).SetBytes(r.whole.Addr().AsSlice())
	step := new(big.Int).Lsh(big.NewInt(i), uint(r.whole.Addr().BitLen()-r.partBits))
	raw := make([]byte, len(r.whole.Addr().AsSlice()))
	address.Add(address, step).FillBytes(raw)
	a, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(a, r.partBits)
}

// free returns a part that is not taken; ok is false if there is none. freed is the number of
// deletions that the caller has seen.
func (r *cidrRange) free(freed int64, taken func(netip.Prefix) bool) (p netip.Prefix, ok bool) {
	if r.full && r.fullAt == freed {
		return netip.Prefix{}, false
	}
	count := int64(1) << (r.partBits - r.whole.Bits())
	for n := range count {
		i := (r.next + n) % count
		if p := r.part(i); !taken(p) {
			r.next, r.full = (i+1)%count, false
			return p, true
		}
	}
	r.full, r.fullAt = true, freed
	return netip.Prefix{}, false
}

func (c *ipam) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	node, ok := c.nodes.Get("", key.Name)
	if !ok || node.Spec.PodCIDR != "" || node.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	var parts []string
	freed := c.freed.Load() // before the search, so that a later deletion begins another one
	for _, r := range c.ranges {
		p, ok := r.free(freed, func(p netip.Prefix) bool {
			return len(c.nodes.ByIndex(byPodCIDR, p.String())) > 0 || (c.service.IsValid() && p.Overlaps(c.service))
		})
		if !ok {
			c.env.Events.Eventf(node, nil, corev1.EventTypeNormal, "CIDRNotAvailable", "AllocateCIDR", "Node %s status is now: CIDRNotAvailable", node.Name)
			// The deletion of another node queues this one again.
			return controller.Result{}, controller.Terminal(fmt.Errorf("no pod range for node %s: all parts of %s are in use", node.Name, r.whole))
		}
		parts = append(parts, p.String())
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID},
		"spec":     map[string]any{"podCIDR": parts[0], "podCIDRs": parts},
	})
	if err != nil {
		return controller.Result{}, err
	}
	_, err = client.Patch[*corev1.Node](ctx, c.env.Client, "", node.Name, types.StrategicMergePatchType, patch)
	if err != nil && !apierrors.IsNotFound(err) {
		c.env.Events.Eventf(node, nil, corev1.EventTypeNormal, "CIDRAssignmentFailed", "AllocateCIDR", "Node %s status is now: CIDRAssignmentFailed", node.Name)
		return controller.Result{}, fmt.Errorf("assign a pod range to node %s: %w", node.Name, err)
	}
	return controller.Result{}, nil
}
