package plugins_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// shelf is an in-memory framework.Storage.
type shelf struct {
	claims      map[string]*corev1.PersistentVolumeClaim
	volumes     map[string]*corev1.PersistentVolume
	classes     map[string]*storagev1.StorageClass
	csiNodes    map[string]*storagev1.CSINode
	drivers     map[string]*storagev1.CSIDriver
	capacities  []*storagev1.CSIStorageCapacity
	attachments []*storagev1.VolumeAttachment
}

func newShelf(objects ...metav1.Object) *shelf {
	s := &shelf{
		claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{}, classes: map[string]*storagev1.StorageClass{},
		csiNodes: map[string]*storagev1.CSINode{}, drivers: map[string]*storagev1.CSIDriver{},
	}
	for _, obj := range objects {
		switch o := obj.(type) {
		case *corev1.PersistentVolumeClaim:
			s.claims[o.Name] = o
		case *corev1.PersistentVolume:
			s.volumes[o.Name] = o
		case *storagev1.StorageClass:
			s.classes[o.Name] = o
		case *storagev1.CSINode:
			s.csiNodes[o.Name] = o
		case *storagev1.CSIDriver:
			s.drivers[o.Name] = o
		case *storagev1.CSIStorageCapacity:
			s.capacities = append(s.capacities, o)
		case *storagev1.VolumeAttachment:
			s.attachments = append(s.attachments, o)
		}
	}
	return s
}

func get[T any](m map[string]T, name string) (T, bool) { v, ok := m[name]; return v, ok }

func (s *shelf) Claim(_, name string) (*corev1.PersistentVolumeClaim, bool) {
	return get(s.claims, name)
}
func (s *shelf) Volume(name string) (*corev1.PersistentVolume, bool) { return get(s.volumes, name) }
func (s *shelf) Class(name string) (*storagev1.StorageClass, bool)   { return get(s.classes, name) }
func (s *shelf) CSINode(name string) (*storagev1.CSINode, bool)      { return get(s.csiNodes, name) }
func (s *shelf) CSIDriver(name string) (*storagev1.CSIDriver, bool)  { return get(s.drivers, name) }
func (s *shelf) Capacities(string) []*storagev1.CSIStorageCapacity   { return s.capacities }
func (s *shelf) Attachments(string) []*storagev1.VolumeAttachment    { return s.attachments }
func (s *shelf) VolumesOf(class string) (list []*corev1.PersistentVolume) {
	for _, name := range slices.Sorted(maps.Keys(s.volumes)) {
		if v := s.volumes[name]; v.Spec.StorageClassName == class {
			list = append(list, v)
		}
	}
	return list
}

func claim(name, class string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	c.Spec.StorageClassName, c.Spec.AccessModes = &class, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for _, fn := range change {
		fn(c)
	}
	return c
}

func boundTo(volume string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = volume
		c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		c.Status.Phase = corev1.ClaimBound
	}
}

func size(s string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(s)
	}
}

func forOnePod(c *corev1.PersistentVolumeClaim) {
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
}

func volume(name, class, capacity string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	v.Spec.StorageClassName, v.Spec.AccessModes = class, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}
	v.Status.Phase = corev1.VolumeAvailable
	for _, fn := range change {
		fn(v)
	}
	return v
}

func in(key string, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
}

func only(node string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{in(corev1.LabelHostname, node)}}}
	}
}

func labelled(key, value string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Labels = map[string]string{key: value} }
}

func ofDriver(v *corev1.PersistentVolume) {
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: v.Name}
}

func class(name, provisioner string, change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &wait}
	for _, fn := range change {
		fn(c)
	}
	return c
}

func inTopology(value string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelHostname, Values: []string{value}}}}}
	}
}

func limit(node string, count int32) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
		Name: "csi.example.com", NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: &count},
	}}}}
}

func tellsCapacity() *storagev1.CSIDriver {
	yes := true
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: &yes}}
}

func room(node, class, capacity string) *storagev1.CSIStorageCapacity {
	q := resource.MustParse(capacity)
	return &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: node}, StorageClassName: class, Capacity: &q,
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: node}}}
}

func node(name string, labels map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	maps.Copy(n.Labels, labels)
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("10")}
	return n
}

func pod(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
	}
	return p
}

func withDisk(name string, disk corev1.VolumeSource) *corev1.Pod {
	p := pod(name)
	p.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: disk}}
	return p
}

func withEphemeral(name string) *corev1.Pod {
	return withDisk(name, corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})
}

func snapshotOf(storage framework.Storage, nodes []*corev1.Node, pods map[string][]*corev1.Pod) *framework.Snapshot {
	var infos []*framework.NodeInfo
	for _, n := range nodes {
		info := framework.NewNodeInfo(n)
		for _, p := range pods[n.Name] {
			info.AddPod(framework.NewPodInfo(p))
		}
		infos = append(infos, info)
	}
	s := framework.NewSnapshot(infos, nil, nil)
	s.Storage = func() (framework.Storage, error) { return storage, nil }
	return s
}

func TestVolumesRestrictNodes(t *testing.T) {
	immediate := storagev1.VolumeBindingImmediate
	ab := []*corev1.Node{node("a", nil), node("b", nil)}
	gce := func(ro bool) corev1.VolumeSource {
		return corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d", ReadOnly: ro}}
	}
	for name, tc := range map[string]struct {
		storage []metav1.Object
		nodes   []*corev1.Node
		pods    map[string][]*corev1.Pod
		pod     *corev1.Pod
		want    string // the node, or the message
		// bind lists the bindings as claim=volume. A claim alone is provisioned.
		bind string
	}{
		"a missing claim refuses": {pod: pod("p", "c"), want: `0/2 nodes are available: persistentvolumeclaim "c" not found.`},
		"a missing claim of an ephemeral volume refuses": {pod: withEphemeral("p"),
			want: `0/2 nodes are available: waiting for ephemeral volume controller to create the persistentvolumeclaim "p-disk".`},
		"another owner's claim refuses for an ephemeral volume": {pod: withEphemeral("p"), storage: []metav1.Object{claim("p-disk", "s")},
			want: `0/2 nodes are available: PVC ns/p-disk was not created for pod ns/p (pod is not owner).`},
		"a claim being deleted refuses": {pod: pod("p", "c"), storage: []metav1.Object{claim("c", "", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} })},
			want: `0/2 nodes are available: persistentvolumeclaim "c" is being deleted.`},
		"a claim that lost its volume refuses": {pod: pod("p", "c"), storage: []metav1.Object{claim("c", "", boundTo("v"), func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })},
			want: `0/2 nodes are available: persistentvolumeclaim "c" bound to non-existent persistentvolume "v".`},
		"an unbound claim without a class refuses": {pod: pod("p", "c"), storage: []metav1.Object{claim("c", "")},
			want: "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."},
		"an unbound claim of an immediate class refuses": {pod: pod("p", "c"), storage: []metav1.Object{claim("c", "s"), class("s", "x", func(c *storagev1.StorageClass) { c.VolumeBindingMode = &immediate })},
			want: "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."},
		"the pod follows its bound volume": {pod: pod("p", "c"), storage: []metav1.Object{claim("c", "", boundTo("v")), volume("v", "", "1Gi", only("b"))}, want: "b"},
		"a bound volume of a missing node refuses": {pod: pod("p", "c"), storage: []metav1.Object{claim("c", "", boundTo("v")), volume("v", "", "1Gi", only("z"))},
			want: "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."},
		"a delayed claim takes an existing volume": {pod: pod("p", "c"), storage: []metav1.Object{claim("c", "s"), class("s", "kubernetes.io/no-provisioner"), volume("v", "s", "1Gi", only("a"))},
			want: "a", bind: "c=v"},
		"each claim takes the smallest volume that fits": {pod: pod("p", "large", "small"), nodes: ab[:1], want: "a", bind: "large=v5 small=v2",
			storage: []metav1.Object{claim("small", "s", size("2Gi")), claim("large", "s", size("4Gi")), class("s", "kubernetes.io/no-provisioner"),
				volume("v9", "s", "9Gi"), volume("v5", "s", "5Gi"), volume("v2", "s", "2Gi"), volume("v1", "s", "1Gi"), volume("other", "t", "2Gi")}},
		"two claims do not share one volume": {pod: pod("p", "c", "d"), storage: []metav1.Object{claim("c", "s"), claim("d", "s"), class("s", "kubernetes.io/no-provisioner"), volume("v", "s", "1Gi")},
			want: "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."},
		"claims without a matching volume are provisioned": {pod: pod("p", "c", "d"), nodes: ab[:1], storage: []metav1.Object{claim("c", "s"), claim("d", "s"), class("s", "csi.example.com"), volume("v", "s", "1Gi")},
			want: "a", bind: "c=v d"},
		"the pod follows a claim being provisioned": {pod: pod("p", "c"), want: "b", bind: "c",
			storage: []metav1.Object{claim("c", "s", func(c *corev1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "b"}
			}), class("s", "csi.example.com"), volume("v", "s", "1Gi", only("a"))}},
		"the class's allowed topologies restrict nodes": {pod: pod("p", "c"), storage: []metav1.Object{claim("c", "s"), class("s", "csi.example.com", inTopology("b"))}, want: "b", bind: "c"},
		"a class for missing nodes refuses": {pod: pod("p", "c"), storage: []metav1.Object{claim("c", "s"), class("s", "csi.example.com", inTopology("z"))},
			want: "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."},
		"the node with enough storage capacity is chosen": {pod: pod("p", "c"), want: "b", bind: "c",
			storage: []metav1.Object{claim("c", "s", size("5Gi")), class("s", "csi.example.com"), tellsCapacity(), room("a", "s", "4Gi"), room("b", "s", "6Gi")}},
		"nodes without enough storage capacity are refused": {pod: pod("p", "c"), storage: []metav1.Object{claim("c", "s", size("5Gi")), class("s", "csi.example.com"), tellsCapacity(), room("a", "s", "4Gi")},
			want: "0/2 nodes are available: 2 node(s) did not have enough free storage."},
		"the pod follows its volume's zone": {pod: pod("p", "c"), nodes: []*corev1.Node{node("a", map[string]string{corev1.LabelTopologyZone: "x"}), node("b", map[string]string{corev1.LabelTopologyZone: "y"})},
			storage: []metav1.Object{claim("c", "", boundTo("v")), volume("v", "", "1Gi", labelled(corev1.LabelTopologyZone, "y__z"))}, want: "b"},
		"the beta zone label counts too": {pod: pod("p", "c"), nodes: []*corev1.Node{node("a", map[string]string{corev1.LabelTopologyZone: "x"})},
			storage: []metav1.Object{claim("c", "", boundTo("v")), volume("v", "", "1Gi", labelled(corev1.LabelFailureDomainBetaZone, "y"))},
			want:    "0/1 nodes are available: 1 node(s) had no available volume zone."},
		"a ReadWriteOncePod claim in use refuses": {pod: pod("p", "c"), storage: []metav1.Object{claim("c", "", boundTo("v"), forOnePod), volume("v", "", "1Gi")}, pods: map[string][]*corev1.Pod{"a": {pod("q", "c")}},
			want: "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod."},
		"a disk in use refuses a second writer": {pod: withDisk("p", gce(true)), pods: map[string][]*corev1.Pod{"a": {withDisk("q", gce(false))}}, want: "b"},
		"a disk may have two readers":           {pod: withDisk("p", gce(true)), nodes: ab[:1], pods: map[string][]*corev1.Pod{"a": {withDisk("q", gce(true))}}, want: "a"},
		"a node at its volume limit is refused": {pod: pod("p", "c"), pods: map[string][]*corev1.Pod{"a": {pod("q", "d")}}, want: "b",
			storage: []metav1.Object{claim("c", "", boundTo("v")), claim("d", "", boundTo("w")), volume("v", "", "1Gi", ofDriver), volume("w", "", "1Gi", ofDriver), limit("a", 1)}},
		"a volume used twice on a node counts once": {pod: pod("p", "c"), nodes: ab[:1], pods: map[string][]*corev1.Pod{"a": {pod("q", "c")}}, want: "a",
			storage: []metav1.Object{claim("c", "", boundTo("v")), volume("v", "", "1Gi", ofDriver), limit("a", 1)}},
		"volumes to be provisioned count toward the limit": {pod: pod("p", "c", "d"), nodes: ab[:1], storage: []metav1.Object{claim("c", "s"), claim("d", "s"), class("s", "csi.example.com"), limit("a", 1)},
			want: "0/1 nodes are available: 1 node(s) exceed max volume count."},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.nodes == nil {
				tc.nodes = ab
			}
			profile := plugins.Default(corev1.DefaultSchedulerName)
			d := scheduler.Decide(scheduler.Input{Snapshot: snapshotOf(newShelf(tc.storage...), tc.nodes, tc.pods), Pod: framework.NewPodInfo(tc.pod), Profile: &profile})
			got := d.Node
			if got == "" {
				got = d.Message()
			}
			if got != tc.want {
				t.Fatalf("got %s\nwant %s", got, tc.want)
			}
			if bind := toBind(&d); bind != tc.bind {
				t.Errorf("to be bound: %q, want %q", bind, tc.bind)
			}
		})
	}
}

func toBind(d *scheduler.Decision) string {
	decisions, ok := d.State[framework.VolumeBinding].(framework.VolumeDecisions)
	if !ok || d.Node == "" {
		return ""
	}
	var out []string
	for _, s := range decisions.On(d.Node).Static {
		out = append(out, s.Claim.Name+"="+s.Volume.Name)
	}
	for _, c := range decisions.On(d.Node).Provision {
		out = append(out, c.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestPodsWithoutClaimsDoNotOpenVolumes(t *testing.T) {
	snapshot := snapshotOf(nil, []*corev1.Node{node("a", nil)}, nil)
	snapshot.Storage = func() (framework.Storage, error) {
		t.Error("volumes were looked at")
		return nil, nil
	}
	profile := plugins.Default(corev1.DefaultSchedulerName)
	d := scheduler.Decide(scheduler.Input{Snapshot: snapshot, Pod: framework.NewPodInfo(pod("p")), Profile: &profile})
	if d.Node != "a" || !(d.Skipped.Has("VolumeBinding") && d.Skipped.Has("VolumeZone") && d.Skipped.Has("VolumeRestrictions") && d.Skipped.Has("NodeVolumeLimits")) {
		t.Errorf("decided %q, skipped %v", d.Node, d.Skipped)
	}
}
