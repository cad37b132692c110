package plugins_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// rack is an in-memory framework.Devices.
type rack struct {
	claims map[string]*resourcev1.ResourceClaim
	flying map[types.UID]bool
	class  map[string]*resourcev1.DeviceClass
	slices []*resourcev1.ResourceSlice
	taken  sets.Set[structured.DeviceID]
	// leftover is the claim of an earlier attempt for the pod's extended resources.
	leftover *resourcev1.ResourceClaim
}

func (r *rack) Claim(_, name string) (*resourcev1.ResourceClaim, bool, bool) {
	c, ok := get(r.claims, name)
	return c, ok && r.flying[c.UID], ok
}
func (r *rack) ExtendedClaim(*corev1.Pod) *resourcev1.ResourceClaim { return r.leftover }
func (r *rack) Class(name string) (*resourcev1.DeviceClass, bool)   { return get(r.class, name) }
func (r *rack) Classes() (list []*resourcev1.DeviceClass) {
	for _, c := range r.class {
		list = append(list, c)
	}
	return list
}
func (r *rack) Selectors() *cel.Cache {
	return cel.NewCache(10, cel.Features{EnableConsumableCapacity: true})
}
func (r *rack) Inventory() framework.Inventory {
	return framework.Inventory{Slices: r.slices, Allocated: structured.AllocatedState{AllocatedDevices: r.taken, AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection()}}
}

// newRack has these devices on each node ("a": "x y"). Class "gpu" selects all of them, "big" those
// with that name.
func newRack(devices map[string]string, taken ...string) *rack {
	r := &rack{claims: map[string]*resourcev1.ResourceClaim{}, class: map[string]*resourcev1.DeviceClass{}, taken: sets.New[structured.DeviceID](), flying: map[types.UID]bool{}}
	for node, names := range devices {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}}
		s.Spec = resourcev1.ResourceSliceSpec{Driver: "d", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}}
		for _, name := range strings.Fields(names) {
			big := strings.HasPrefix(name, "big")
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"big": {BoolValue: &big}}})
		}
		r.slices = append(r.slices, s)
	}
	r.class["gpu"] = &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	r.class["big"] = &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "big"}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["d"].big`}}},
	}}
	for _, t := range taken {
		pool, device, _ := strings.Cut(t, "/")
		r.taken.Insert(structured.MakeDeviceID("d", pool, device))
	}
	return r
}

func (r *rack) with(claims ...*resourcev1.ResourceClaim) *rack {
	for _, c := range claims {
		r.claims[c.Name] = c
	}
	return r
}

func resourceClaim(name, class string, change ...func(*resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
	}}}
	for _, fn := range change {
		fn(c)
	}
	return c
}

func count(n int64) func(*resourcev1.ResourceClaim) {
	return func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Requests[0].Exactly.Count = n }
}

func asAdmin(c *resourcev1.ResourceClaim) {
	yes := true
	c.Spec.Devices.Requests[0].Exactly.AdminAccess = &yes
}

// bigOrAny requests a big device, or any other one if there is none.
func bigOrAny(c *resourcev1.ResourceClaim) {
	sub := func(name, class string) resourcev1.DeviceSubRequest {
		return resourcev1.DeviceSubRequest{Name: name, DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
	}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", FirstAvailable: []resourcev1.DeviceSubRequest{sub("big", "big"), sub("any", "gpu")}}}
}

func allocatedOn(node string) func(*resourcev1.ResourceClaim) {
	return func(c *resourcev1.ResourceClaim) {
		c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
	}
}

func claiming(names ...string) *corev1.Pod {
	p := pod("p")
	for _, name := range names {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: &name})
	}
	return p
}

func TestDevicesRestrictNodes(t *testing.T) {
	template := claiming()
	tn := "t"
	template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: &tn}}
	for name, tc := range map[string]struct {
		rack *rack
		pod  *corev1.Pod
		want string // the node and the devices, or the message
	}{
		"a claim not yet made from its template refuses": {rack: newRack(nil), pod: template, want: `0/2 nodes are available: pod "ns/p": ResourceClaim not created yet.`},
		"a missing claim refuses": {rack: newRack(nil), pod: claiming("c"),
			want: `0/2 nodes are available: resourceclaim.resource.k8s.io "c" not found.`},
		"a claim being deleted refuses": {rack: newRack(nil).with(resourceClaim("c", "gpu", func(c *resourcev1.ResourceClaim) { c.DeletionTimestamp = &metav1.Time{} })), pod: claiming("c"),
			want: `0/2 nodes are available: resourceclaim "c" is being deleted.`},
		"a missing class refuses": {rack: newRack(nil).with(resourceClaim("c", "none")), pod: claiming("c"),
			want: "0/2 nodes are available: request r: device class none does not exist."},
		"nodes without devices are refused":                    {rack: newRack(nil).with(resourceClaim("c", "gpu")), pod: claiming("c"), want: "0/2 nodes are available: 2 cannot allocate all claims."},
		"the node with a device is chosen":                     {rack: newRack(map[string]string{"b": "x"}).with(resourceClaim("c", "gpu")), pod: claiming("c"), want: "b c=b/x"},
		"allocated devices are not available":                  {rack: newRack(map[string]string{"a": "x", "b": "x"}, "a/x").with(resourceClaim("c", "gpu")), pod: claiming("c"), want: "b c=b/x"},
		"admin access works on allocated devices":              {rack: newRack(map[string]string{"a": "x"}, "a/x").with(resourceClaim("c", "gpu", asAdmin)), pod: claiming("c"), want: "a c=a/x"},
		"the class selects among devices":                      {rack: newRack(map[string]string{"a": "x", "b": "x big1"}).with(resourceClaim("c", "big")), pod: claiming("c"), want: "b c=b/big1"},
		"a request for two devices gets both":                  {rack: newRack(map[string]string{"a": "x", "b": "x y"}).with(resourceClaim("c", "gpu", count(2))), pod: claiming("c"), want: "b c=b/x c=b/y"},
		"two claims get different devices":                     {rack: newRack(map[string]string{"a": "x", "b": "x y"}).with(resourceClaim("c", "gpu"), resourceClaim("d", "gpu")), pod: claiming("c", "d"), want: "b c=b/x d=b/y"},
		"the pod follows the devices of an allocated claim":    {rack: newRack(map[string]string{"a": "x"}).with(resourceClaim("c", "gpu", allocatedOn("b"))), pod: claiming("c"), want: "b"},
		"devices of an allocated claim on another node refuse": {rack: newRack(nil).with(resourceClaim("c", "gpu", allocatedOn("z"))), pod: claiming("c"), want: "0/2 nodes are available: 2 resourceclaim not available on the node."},
		"the first alternative is preferred":                   {rack: newRack(map[string]string{"a": "x", "b": "big1"}).with(resourceClaim("c", "", bigOrAny)), pod: claiming("c"), want: "b c=b/big1"},
		"a later alternative is used if needed":                {rack: newRack(map[string]string{"a": "x"}).with(resourceClaim("c", "", bigOrAny)), pod: claiming("c"), want: "a c=a/x"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decideDevices(tc.rack, tc.pod); got != tc.want {
				t.Fatalf("got %s\nwant %s", got, tc.want)
			}
		})
	}
	t.Run("a claim that another pod is allocating refuses", func(t *testing.T) {
		r := newRack(map[string]string{"a": "x"}).with(resourceClaim("c", "gpu"))
		r.flying["c"] = true
		if got := decideDevices(r, claiming("c")); got != "0/2 nodes are available: resource claim ns/c is in the process of being allocated." {
			t.Error(got)
		}
	})
}

func decideDevices(r *rack, p *corev1.Pod) string {
	snapshot := snapshotOf(nil, []*corev1.Node{node("a", nil), node("b", nil)}, nil)
	snapshot.Devices = func() (framework.Devices, error) { return r, nil }
	profile := plugins.Default(corev1.DefaultSchedulerName)
	d := scheduler.Decide(scheduler.Input{Snapshot: snapshot, Pod: framework.NewPodInfo(p), Profile: &profile})
	if d.Node == "" {
		return d.Message()
	}
	var out []string
	for claim, allocation := range d.State[framework.DynamicResources].(framework.DeviceDecisions).On(d.Node) {
		for _, result := range allocation.Devices.Results {
			out = append(out, claim+"="+result.Pool+"/"+result.Device)
		}
	}
	slices.Sort(out)
	return strings.Join(append([]string{d.Node}, out...), " ")
}

func TestPodsWithoutClaimsDoNotOpenDevices(t *testing.T) {
	snapshot := snapshotOf(nil, []*corev1.Node{node("a", nil)}, nil)
	snapshot.Devices = func() (framework.Devices, error) { return nil, errors.New("devices were looked at") }
	profile := plugins.Default(corev1.DefaultSchedulerName)
	d := scheduler.Decide(scheduler.Input{Snapshot: snapshot, Pod: framework.NewPodInfo(pod("p")), Profile: &profile})
	if d.Node != "a" || !d.Skipped.Has("DynamicResources") {
		t.Errorf("decided %q: %v", d.Node, d.Err)
	}
}
