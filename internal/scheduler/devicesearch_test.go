package scheduler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// FuzzDecideWithKeptDevices changes random devices and decides pods with random claims. A decision
// with kept results of searches must be the same as one that searches everywhere.
func FuzzDecideWithKeptDevices(f *testing.F) {
	for seed := range uint64(80) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := newRoom(t, seed)
		for range 200 {
			r.step(t)
		}
	})
}

// objectsByName is a View that tests fill.
type objectsByName struct {
	client.View
	objects map[string]runtime.Object
	gets    atomic.Int64
}

func (v *objectsByName) Get(_, name string) (runtime.Object, bool) {
	v.gets.Add(1)
	o, ok := v.objects[name]
	return o, ok
}

func (v *objectsByName) List(string, labels.Selector) (list []runtime.Object) {
	for _, name := range slices.Sorted(maps.Keys(v.objects)) {
		list = append(list, v.objects[name])
	}
	return list
}

// room is a cluster with devices that change at random.
type room struct {
	random                  *rand.Rand
	cluster                 *cluster
	devices                 *devices
	claims, classes, slices *objectsByName
	profile                 framework.Profile
	kinds                   []func(*resourcev1.ResourceClaimSpec) // of the claims
	// flying are allocations that are not written yet.
	flying map[string]*resourcev1.AllocationResult
	count  int
}

func newRoom(t *testing.T, seed uint64) *room {
	view := func() *objectsByName { return &objectsByName{objects: map[string]runtime.Object{}} }
	r := &room{
		random: rand.New(rand.NewPCG(seed, 2)), cluster: newCluster(nil, nil), profile: plugins.Default(corev1.DefaultSchedulerName),
		claims: view(), classes: view(), slices: view(), flying: map[string]*resourcev1.AllocationResult{},
	}
	r.devices = newDevices(t.Context(), nil, func(framework.Events, func(*framework.PodInfo) bool) {}, func(*resourcev1.ResourceClaim) {})
	r.devices.opened.done = true
	r.devices.claims = client.ViewOf[*resourcev1.ResourceClaim]{View: r.claims}
	r.devices.classes = client.ViewOf[*resourcev1.DeviceClass]{View: r.classes}
	r.devices.slices = client.ViewOf[*resourcev1.ResourceSlice]{View: r.slices}
	r.cluster.devices = r.devices.use
	for i := range 4 {
		r.setNode(fmt.Sprint("node", i))
		r.setSlice(fmt.Sprint("node", i))
	}
	r.setSlice(r.of("everywhere", "rack", "wide", "counters", "each"))
	r.setClass("any")
	r.setClass("big")
	r.kinds = []func(*resourcev1.ResourceClaimSpec){r.kind(), r.kind()}
	return r
}

func (r *room) pick(n int) int        { return r.random.IntN(n) }
func (r *room) chance(one int) bool   { return r.pick(one) == 0 }
func (r *room) of(s ...string) string { return s[r.pick(len(s))] }
func (r *room) node() string          { return fmt.Sprint("node", r.pick(4)) }

func (r *room) setNode(name string) {
	n := node(name, "100")
	n.Labels = map[string]string{"rack": r.of("x", "y")}
	r.cluster.setNode(n)
}

func (r *room) setClass(name string) {
	r.count++
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(r.count)}}
	if name == "big" {
		c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf(`device.attributes["d"].size >= %d`, r.pick(4))}}}
	}
	r.classes.objects[name] = c
}

// setSlice changes the devices of a pool. The pool of a node is its own; others have devices for
// several nodes.
func (r *room) setSlice(pool string) {
	r.count++
	for name, o := range r.slices.objects {
		if o.(*resourcev1.ResourceSlice).Spec.Pool.Name == pool {
			delete(r.slices.objects, name)
		}
	}
	add := func(count int64, change func(*resourcev1.ResourceSliceSpec)) {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(pool, "-", len(r.slices.objects), "-", r.count)}}
		s.Spec = resourcev1.ResourceSliceSpec{Driver: "d", Pool: resourcev1.ResourcePool{Name: pool, Generation: int64(r.count), ResourceSliceCount: count}}
		change(&s.Spec)
		r.slices.objects[s.Name] = s
	}
	on := func(node, prefix string) func(*resourcev1.ResourceSliceSpec) {
		return func(s *resourcev1.ResourceSliceSpec) { s.NodeName, s.Devices = &node, r.devicesNamed(prefix) }
	}
	all := true
	switch pool {
	case "everywhere":
		add(1, func(s *resourcev1.ResourceSliceSpec) { s.AllNodes, s.Devices = &all, r.devicesNamed("e") })
	case "rack":
		add(1, func(s *resourcev1.ResourceSliceSpec) {
			s.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"x"}},
			}}}}
			s.Devices = r.devicesNamed("r")
		})
	case "wide": // it may be incomplete
		add(2, on("node0", "a"))
		if r.chance(2) {
			add(2, on("node1", "b"))
		}
	case "counters":
		add(2, func(s *resourcev1.ResourceSliceSpec) {
			s.AllNodes = &all
			s.SharedCounters = []resourcev1.CounterSet{{Name: "set", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse("3")}}}}
		})
		add(2, func(s *resourcev1.ResourceSliceSpec) {
			s.AllNodes, s.Devices = &all, r.devicesNamed("c")
			for i := range s.Devices {
				s.Devices[i].ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "set", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse("1")}}}}
			}
		})
	case "each": // the devices name their nodes
		add(1, func(s *resourcev1.ResourceSliceSpec) {
			s.PerDeviceNodeSelection, s.Devices = &all, r.devicesNamed("p")
			for i := range s.Devices {
				name := r.node()
				s.Devices[i].NodeName = &name
			}
		})
	default:
		add(1, on(pool, "n"))
	}
	r.devices.noteSlices()
}

func (r *room) devicesNamed(prefix string) (list []resourcev1.Device) {
	for i := range r.pick(4) {
		size, color := int64(r.pick(4)), r.of("red", "blue")
		d := resourcev1.Device{Name: fmt.Sprint(prefix, i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"size": {IntValue: &size}, "color": {StringValue: &color},
		}}
		if r.chance(4) {
			d.AllowMultipleAllocations = new(true)
			d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("2")}}
		}
		if r.chance(8) {
			d.Taints = []resourcev1.DeviceTaint{{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		}
		if r.chance(8) {
			d.BindingConditions, d.BindingFailureConditions = []string{"attached"}, []string{"failed"}
		}
		list = append(list, d)
	}
	if prefix == "n" && r.chance(12) && len(list) > 0 {
		list = append(list, list[0]) // the pool is invalid
	}
	return list
}

// kind returns a kind of claims with equal specs.
func (r *room) kind() func(*resourcev1.ResourceClaimSpec) {
	kind, class, twoOfOneColor := r.pick(10), r.of("any", "big"), r.chance(2)
	sub := func(name, class string) resourcev1.DeviceSubRequest {
		return resourcev1.DeviceSubRequest{Name: name, DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
	}
	return func(s *resourcev1.ResourceClaimSpec) {
		exactly := resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
		s.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &exactly}}
		switch kind {
		case 0:
			exactly.Count = 2
			if twoOfOneColor {
				attribute := resourcev1.FullyQualifiedName("d/color")
				s.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: &attribute}}
			}
		case 1:
			exactly.AdminAccess = new(true)
		case 2:
			s.Devices.Requests[0] = resourcev1.DeviceRequest{Name: "r", FirstAvailable: []resourcev1.DeviceSubRequest{sub("big", "big"), sub("any", "any")}}
		case 3:
			exactly.AllocationMode, exactly.Count = resourcev1.DeviceAllocationModeAll, 0
		case 4:
			exactly.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("1")}}
		case 5:
			exactly.Tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
		case 6:
			exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["d"].color == "red"`}}}
		}
	}
}

func (r *room) newClaim() *resourcev1.ResourceClaim {
	r.count++
	c := freeClaim(fmt.Sprint("claim", r.count))
	r.kinds[r.pick(len(r.kinds))](&c.Spec)
	r.claims.objects[c.Name] = c
	return c
}

// step changes something, or decides a pod.
func (r *room) step(t *testing.T) {
	switch r.pick(24) {
	case 0:
		r.setNode(r.node())
	case 1:
		r.setSlice(r.of("node0", "node1", "everywhere", "rack", "wide", "counters", "each"))
	case 2:
		r.setClass(r.of("any", "big"))
	case 3:
		r.kinds[r.pick(len(r.kinds))] = r.kind()
	case 4, 5, 6, 7:
		r.land()
	case 8, 9, 10:
		r.release()
	default:
		r.decide(t)
	}
}

// land ends an allocation that is not written yet: it is written or given up.
func (r *room) land() {
	if len(r.flying) == 0 {
		return
	}
	name := slices.Sorted(maps.Keys(r.flying))[0]
	allocation, claim := r.flying[name], r.claims.objects[name].(*resourcev1.ResourceClaim)
	if !r.chance(4) {
		claim = claim.DeepCopy()
		claim.Status.Allocation = allocation.DeepCopy()
		r.claims.objects[name] = claim
		r.devices.notify(claim)
	}
	r.devices.forget(claim, allocation)
	delete(r.flying, name)
}

// release takes the devices from a claim. Another scheduler may already have given it others.
func (r *room) release() {
	for _, name := range slices.Sorted(maps.Keys(r.claims.objects)) {
		claim := r.claims.objects[name].(*resourcev1.ResourceClaim)
		if claim.Status.Allocation == nil || r.flying[name] != nil || !r.chance(3) {
			continue
		}
		claim = claim.DeepCopy()
		if results := claim.Status.Allocation.Devices.Results; r.chance(2) || len(results) == 0 {
			claim.Status.Allocation = nil
		} else {
			results[0].Device = fmt.Sprint(results[0].Device[:1], r.pick(3))
		}
		r.claims.objects[name] = claim
		r.devices.notify(claim)
		return
	}
}

func (r *room) decide(t *testing.T) {
	r.count++
	p := pod(fmt.Sprint("pod", r.count), "1m")
	p.Namespace = "ns"
	for range 1 + r.pick(5)/4 {
		name := r.newClaim().Name
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: &name})
	}
	in := Input{Snapshot: r.cluster.takeSnapshot(), Pod: framework.NewPodInfo(p), Profile: &r.profile, Pick: r.random.Uint64(), Explain: true}
	kept := Decide(in)
	again := *in.Snapshot
	in.Snapshot = &again
	in.Snapshot.Devices = func() (framework.Devices, error) { return countedAgain{r.devices}, nil }
	plain := Decide(in)
	if a, b := verdictOf(&kept), verdictOf(&plain); !reflect.DeepEqual(a, b) {
		t.Fatalf("pod %v\nwith kept results %+v\nwithout           %+v", p.Spec.ResourceClaims, a, b)
	}
	for _, n := range in.Snapshot.Nodes.All() {
		if a, b := foundOn(&kept, n.Name()), foundOn(&plain, n.Name()); !reflect.DeepEqual(a, b) {
			t.Fatalf("pod %v on %s\nwith kept results %+v\nwithout           %+v", p.Spec.ResourceClaims, n.Name(), a, b)
		}
	}
	decided, ok := decidedDevices(kept.State)
	if kept.Node == "" || !ok || r.chance(6) {
		return
	}
	for name, allocation := range decided.On(kept.Node) {
		r.devices.assume(r.claims.objects[name].(*resourcev1.ResourceClaim), allocation)
		r.flying[name] = allocation
	}
}

// foundOn returns what a decision found for the claims on a node, but for random IDs.
func foundOn(d *Decision, node string) map[string]resourcev1.AllocationResult {
	decided, ok := decidedDevices(d.State)
	if !ok {
		return nil
	}
	found := map[string]resourcev1.AllocationResult{}
	for name, allocation := range decided.On(node) {
		plain := allocation.DeepCopy()
		for i := range plain.Devices.Results {
			plain.Devices.Results[i].ShareID = nil
		}
		found[name] = *plain
	}
	return found
}

// countedAgain counts the devices of all claims again for each decision.
type countedAgain struct{ *devices }

func (d countedAgain) Inventory() framework.Inventory {
	tally := framework.NewTally()
	for _, claim := range d.claims.List("", nil) {
		if a := d.inFlight[claim.UID]; a != nil {
			tally.Add(a)
		} else if claim.Status.Allocation != nil {
			tally.Add(claim.Status.Allocation)
		}
	}
	return framework.Inventory{Slices: d.slices.List("", nil), Allocated: tally.State()}
}

// TestADecisionSearchesOnlyWhereDevicesChanged counts the look-ups of the class: each search makes
// one.
func TestADecisionSearchesOnlyWhereDevicesChanged(t *testing.T) {
	r := newRoom(t, 1)
	clear(r.slices.objects)
	for i := range 50 {
		name := fmt.Sprint("more", i)
		r.setNode(name)
		r.slices.objects[name] = &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "d", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "one"}, {Name: "two"}, {Name: "three"}},
		}}
	}
	r.devices.noteSlices()
	decide := func() int64 {
		c := freeClaim(fmt.Sprint("claim", r.count))
		r.count++
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "any", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		}}}
		r.claims.objects[c.Name] = c
		p := pod(c.Name, "1m")
		p.Namespace, p.Spec.ResourceClaims = "ns", []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &c.Name}}
		before := r.classes.gets.Load()
		d := Decide(Input{Snapshot: r.cluster.takeSnapshot(), Pod: framework.NewPodInfo(p), Profile: &r.profile})
		decided, _ := decidedDevices(d.State)
		for _, allocation := range decided.On(d.Node) {
			r.devices.assume(c, allocation)
			c.Status.Allocation = allocation.DeepCopy() // written
			r.devices.forget(c, allocation)
		}
		return r.classes.gets.Load() - before
	}
	const perDecision = 2 // whether it exists, and the key
	for i, want := range []int64{54, 54, 1, 1, 1} {
		if got := decide() - perDecision; got != want {
			t.Errorf("decision %d searched on %d nodes, want %d", i, got, want)
		}
	}
}
