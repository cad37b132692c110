package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	claimhelper "k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// dynamicResources checks that the pod's allocated ResourceClaims are usable on the node, and that
// the others can get devices there. Upstream's published allocator chooses the devices (ADR 20).
type dynamicResources struct {
	plugin
	timeout time.Duration // of the search on one node; 0 is none
	answers *deviceAnswers
}

// allocationTimeout bounds the search for devices on one node, as upstream's default: the search
// can take exponential time in the requests of a claim.
const allocationTimeout = 10 * time.Second

// deviceFeatures are on by default in v1.36.
var deviceFeatures = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true,
}

// claimsOfPod is what PreFilter found out about a pod's claims.
type claimsOfPod struct {
	claims      []*resourcev1.ResourceClaim
	unallocated []*resourcev1.ResourceClaim
	// usable selects the nodes where an allocated claim is usable. A claim without a selector is
	// usable on all nodes.
	usable   map[*resourcev1.ResourceClaim]*nodeaffinity.NodeSelector
	devices  framework.Devices
	search   *deviceSearch     // nil if all claims are allocated
	answers  *answersForClaims // for the unallocated claims
	found    map[string][]resourcev1.AllocationResult
	decided  map[string]map[string]*resourcev1.AllocationResult // what On returned
	inTheWay []*resourcev1.ResourceClaim
	extended *extended // nil without extended resources of device classes
}

func (c *claimsOfPod) Claims() []*resourcev1.ResourceClaim { return c.claims }

// On returns copies: the caller tells allocations apart by their addresses, and pods with equal
// claims share the results.
func (c *claimsOfPod) On(node string) map[string]*resourcev1.AllocationResult {
	results, ok := c.found[node]
	if !ok || c.decided[node] != nil {
		return c.decided[node]
	}
	decided := make(map[string]*resourcev1.AllocationResult, len(results))
	for i, claim := range c.wanting(c.Extended(node)) {
		result := results[i]
		decided[claim.Name] = &result
	}
	if c.decided == nil {
		c.decided = map[string]map[string]*resourcev1.AllocationResult{}
	}
	c.decided[node] = decided
	return decided
}

// wanting returns the claims without devices, with the one for extended resources at the end.
func (c *claimsOfPod) wanting(own *framework.ExtendedClaim) []*resourcev1.ResourceClaim {
	if own == nil {
		return c.unallocated
	}
	return append(slices.Clip(c.unallocated), own.Claim)
}

// InTheWay has the claim of an earlier attempt at the end: it must go wherever the pod may go.
func (c *claimsOfPod) InTheWay() []*resourcev1.ResourceClaim {
	if c.extended == nil || c.extended.leftover == nil {
		return c.inTheWay
	}
	return append(slices.Clip(c.inTheWay), c.extended.leftover)
}

func (c *claimsOfPod) Extended(node string) *framework.ExtendedClaim {
	if c.extended == nil {
		return nil
	}
	return c.extended.on[node]
}

func (p dynamicResources) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	if len(pod.Pod.Spec.ResourceClaims) == 0 && len(framework.ExtendedRequests(pod)) == 0 || snapshot.Devices == nil {
		return nil, &framework.Status{Code: framework.Skip}
	}
	devices, err := snapshot.Devices()
	if err != nil {
		return nil, framework.Fail(err)
	}
	c := &claimsOfPod{
		devices: devices,
		usable:  map[*resourcev1.ResourceClaim]*nodeaffinity.NodeSelector{}, found: map[string][]resourcev1.AllocationResult{},
	}
	beingAllocated := map[*resourcev1.ResourceClaim]bool{}
	for i := range pod.Pod.Spec.ResourceClaims {
		claim, inFlight, status := resourceClaimOf(devices, pod.Pod, &pod.Pod.Spec.ResourceClaims[i])
		if status != nil {
			return nil, status
		}
		// The pod may not need the claim, or name it twice.
		if claim != nil && !slices.Contains(c.claims, claim) {
			c.claims, beingAllocated[claim] = append(c.claims, claim), inFlight
		}
	}
	for _, claim := range c.claims {
		if status := c.add(claim, beingAllocated[claim]); status != nil {
			return nil, status
		}
	}
	c.extended = newExtended(devices, pod)
	if len(c.claims) == 0 && c.extended == nil {
		return nil, &framework.Status{Code: framework.Skip}
	}
	if len(c.unallocated) > 0 || c.extended != nil {
		if status := p.prepare(c); status != nil {
			return nil, status
		}
	}
	state[p.Name()] = c
	return nil, nil
}

// ClaimsExist says why a claim of the pod does not exist yet; nil means that all do. The scheduler
// asks before it queues the pod: no decision, condition or event is needed for such a pod.
func (dynamicResources) ClaimsExist(devices framework.Devices, pod *corev1.Pod) *framework.Status {
	for i := range pod.Spec.ResourceClaims {
		if _, _, status := resourceClaimOf(devices, pod, &pod.Spec.ResourceClaims[i]); status != nil {
			return status
		}
	}
	return nil
}

// add notes a claim of the pod. The status says why the pod cannot use it now.
func (c *claimsOfPod) add(claim *resourcev1.ResourceClaim, beingAllocated bool) *framework.Status {
	allocation := claim.Status.Allocation
	switch {
	case allocation == nil && beingAllocated:
		return framework.RefuseAlways(fmt.Sprintf("resource claim %s/%s is in the process of being allocated", claim.Namespace, claim.Name))
	case allocation == nil:
		c.unallocated = append(c.unallocated, claim)
		for i := range claim.Spec.Devices.Requests {
			if status := classesExist(c.devices, &claim.Spec.Devices.Requests[i]); status != nil {
				return status
			}
		}
	case allocation.NodeSelector != nil:
		selector, err := nodeaffinity.NewNodeSelector(allocation.NodeSelector)
		if err != nil {
			return framework.Fail(err)
		}
		c.usable[claim] = selector
	}
	return nil
}

// resourceClaimOf finds a claim of the pod; nil if the pod needs none.
func resourceClaimOf(devices framework.Devices, pod *corev1.Pod, ref *corev1.PodResourceClaim) (claim *resourcev1.ResourceClaim, beingAllocated bool, status *framework.Status) {
	name, mustCheckOwner, err := claimhelper.Name(pod, ref)
	if err != nil {
		return nil, false, framework.RefuseAlways(err.Error())
	}
	if name == nil {
		return nil, false, nil
	}
	claim, beingAllocated, ok := devices.Claim(pod.Namespace, *name)
	switch {
	case !ok:
		return nil, false, framework.RefuseAlways(apierrors.NewNotFound(resourcev1.Resource("resourceclaim"), *name).Error())
	case claim.DeletionTimestamp != nil:
		return nil, false, framework.RefuseAlways(fmt.Sprintf("resourceclaim %q is being deleted", claim.Name))
	}
	if mustCheckOwner {
		if err := claimhelper.IsForPod(pod, claim, false); err != nil {
			return nil, false, framework.RefuseAlways(err.Error())
		}
	}
	return claim, beingAllocated, nil
}

// prepare makes the search for the unallocated claims.
func (p dynamicResources) prepare(c *claimsOfPod) *framework.Status {
	var err error
	if c.search, err = p.answers.searchIn(c.devices); err != nil {
		return framework.Fail(err)
	}
	c.answers = p.answers.forClaims(c.search, c.devices, c.unallocated)
	return nil
}

func classesExist(devices framework.Devices, r *resourcev1.DeviceRequest) *framework.Status {
	type named struct{ request, class string }
	var wanted []named
	if r.Exactly != nil {
		wanted = append(wanted, named{r.Name, r.Exactly.DeviceClassName})
	}
	for _, sub := range r.FirstAvailable {
		wanted = append(wanted, named{r.Name + "/" + sub.Name, sub.DeviceClassName})
	}
	if len(wanted) == 0 {
		return framework.RefuseAlways(fmt.Sprintf("request %s: unsupported request type", r.Name))
	}
	for _, w := range wanted {
		if _, ok := devices.Class(w.class); !ok {
			return framework.RefuseAlways(fmt.Sprintf("request %s: device class %s does not exist", w.request, w.class))
		}
	}
	return nil
}

// classLister gives the allocator access to device classes.
type classLister struct{ devices framework.Devices }

func (l classLister) List() ([]*resourcev1.DeviceClass, error) { return l.devices.Classes(), nil }

func (l classLister) Get(name string) (*resourcev1.DeviceClass, error) {
	if c, ok := l.devices.Class(name); ok {
		return c, nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("deviceclass"), name)
}

func (p dynamicResources) Filter(state framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	c := state[p.Name()].(*claimsOfPod)
	own, status := c.extended.claimOn(pod, node)
	if status != nil {
		return status
	}
	var away []*resourcev1.ResourceClaim
	for _, claim := range c.claims {
		if !c.usableOn(claim, node.Node) {
			away = append(away, claim)
		}
	}
	// The search comes first: devices are not taken from a claim if the other claims get none.
	if status := p.searchOn(c, node, own); status != nil {
		return status
	}
	for _, claim := range away {
		if !slices.Contains(c.inTheWay, claim) {
			c.inTheWay = append(c.inTheWay, claim)
		}
	}
	if len(away) > 0 {
		return framework.RefuseAlways("resourceclaim not available on the node")
	}
	return nil
}

// usableOn reports whether the devices of an allocated claim are usable on the node. Devices that
// failed to become ready are usable nowhere.
func (c *claimsOfPod) usableOn(claim *resourcev1.ResourceClaim, node *corev1.Node) bool {
	if claim.Status.Allocation == nil {
		return true
	}
	if selector := c.usable[claim]; selector != nil && !selector.Match(node) {
		return false
	}
	_, err := framework.DevicesReady(claim)
	return err == nil
}

// searchOn notes what the claims without devices get on the node; own is for extended resources.
func (p dynamicResources) searchOn(c *claimsOfPod, node *framework.NodeInfo, own *framework.ExtendedClaim) *framework.Status {
	wanting := c.wanting(own)
	if len(wanting) == 0 {
		return nil
	}
	answers := c.answers
	if own != nil {
		answers = p.answers.forClaims(c.search, c.devices, wanting)
	}
	results, status := p.allocate(c, answers, node, wanting)
	switch {
	case status != nil:
		return status
	case len(results) != len(wanting):
		return framework.RefuseAlways("cannot allocate all claims")
	}
	c.found[node.Name()] = results
	if own != nil {
		c.extended.on[node.Name()] = own
	}
	return nil
}

// allocate searches for devices on a node unless the result is known. The result is empty if the
// claims cannot get devices there now.
func (p dynamicResources) allocate(c *claimsOfPod, answers *answersForClaims, node *framework.NodeInfo, wanting []*resourcev1.ResourceClaim) (
	[]resourcev1.AllocationResult, *framework.Status,
) {
	var version framework.DeviceVersion
	if answers != nil {
		version = c.search.versions.Of(node.Name())
		if known, ok := answers.on[node.Name()]; ok && known.version == version && known.node == node.Node {
			return known.results, nil
		}
	}
	ctx := context.Background()
	if p.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.timeout)
		defer cancel()
	}
	results, err := c.search.allocator.Allocate(ctx, node.Node, wanting)
	switch {
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return nil, framework.RefuseAlways(err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return nil, framework.RefuseAlways("timed out trying to allocate devices")
	case err != nil:
		return nil, framework.Fail(err)
	}
	if answers != nil {
		p.answers.keep(answers, node.Node, version, results)
	}
	return results, nil
}

// PreScore skips unless a request has alternatives.
func (p dynamicResources) PreScore(state framework.State, _ *framework.PodInfo, _ *framework.Snapshot, _ []*framework.NodeInfo) *framework.Status {
	if c, ok := state[p.Name()].(*claimsOfPod); ok && len(c.found) > 0 {
		for _, claim := range c.claims {
			if slices.ContainsFunc(claim.Spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool { return len(r.FirstAvailable) > 0 }) {
				return nil
			}
		}
	}
	return &framework.Status{Code: framework.Skip}
}

// Score prefers nodes that can serve the earlier alternatives. Those of allocated claims count too,
// for all nodes alike: normalizing then makes the others weigh less.
func (p dynamicResources) Score(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	c := state[p.Name()].(*claimsOfPod)
	var score int64
	results := c.found[node.Name()]
	if results == nil {
		return 0, nil
	}
	for _, claim := range c.claims {
		allocation := claim.Status.Allocation
		if allocation == nil {
			allocation, results = &results[0], results[1:]
		}
		for _, r := range claim.Spec.Devices.Requests {
			for i, sub := range r.FirstAvailable {
				ref := claimhelper.CreateSubRequestRef(r.Name, sub.Name)
				if slices.ContainsFunc(allocation.Devices.Results, func(d resourcev1.DeviceRequestAllocationResult) bool { return d.Request == ref }) {
					score += int64(resourcev1.FirstAvailableDeviceRequestMaxSize - i)
				}
			}
		}
	}
	return score, nil
}

func (dynamicResources) Normalize(_ framework.State, _ *framework.PodInfo, _ []*framework.NodeInfo, scores []int64) {
	scale(scores, false)
}

func (dynamicResources) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeLabels | framework.NodeTaints | framework.PodRemoved | framework.SelfChanged |
		framework.ResourceClaimChanged | framework.DeviceClassChanged | framework.DevicesChanged
}
