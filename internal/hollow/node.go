package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/version"
)

// Config configures a hollow node.
type Config struct {
	// Node has the node's name, and metadata, spec and capacity that differ from the defaults: 8
	// CPUs, 32 GiB, 110 pods.
	Node corev1.Node
	// Client is authenticated as system:node:NAME in the group system:nodes.
	Client client.Interface
	// Address is the node's internal IP.
	Address string
	// PodRange is the source of pods' addresses until spec.podCIDR is assigned. If unset, pods wait
	// for spec.podCIDR.
	PodRange netip.Prefix
	// Fate returns a pod's fate. If nil, containers run until the pod is deleted.
	Fate func(*corev1.Pod) Fate
	// Clock is for pods' times; nil selects the machine's clock. The lease always follows the
	// machine's clock.
	Clock clock.WithTicker
	Log   *slog.Logger
	// RenewEvery is the interval of lease renewals; default 10 s, as in a kubelet.
	RenewEvery time.Duration
	// Registered is called once the Node object exists.
	Registered func()
}

// Heartbeats, as in a kubelet.
const (
	leaseSeconds = 40
	renewEvery   = 10 * time.Second
	statusEvery  = 5 * time.Minute
)

type node struct {
	Config
	nodes client.ViewOf[*corev1.Node]
	pods  client.ViewOf[*corev1.Pod]

	mu        sync.Mutex
	addresses map[types.UID]netip.Addr
}

// Run simulates a node until ctx ends. Its Node object and lease stay.
func Run(ctx context.Context, config Config) error {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	if config.RenewEvery == 0 {
		config.RenewEvery = renewEvery
	}
	if config.Registered == nil {
		config.Registered = func() {}
	}
	config.Registered = sync.OnceFunc(config.Registered)
	n := &node{Config: config, addresses: map[types.UID]netip.Addr{}}
	var err error
	if n.nodes, err = client.Open[*corev1.Node](ctx, n.Client, client.Scope{FieldSelector: "metadata.name=" + n.Node.Name}); err != nil {
		return fmt.Errorf("hollow node %s: %w", n.Node.Name, err)
	}
	if n.pods, err = client.Open[*corev1.Pod](ctx, n.Client, client.Scope{FieldSelector: "spec.nodeName=" + n.Node.Name}); err != nil {
		return fmt.Errorf("hollow node %s: %w", n.Node.Name, err)
	}
	own := controller.Key{Name: n.Node.Name}
	registration := controller.Loop{
		Name: "hollow-node", Log: n.Log, Inputs: []controller.Input{controller.Self(n.nodes)}, Reconcile: n.register,
		Sources: []func(context.Context, func(controller.Key, time.Duration)){
			func(_ context.Context, add func(controller.Key, time.Duration)) { add(own, 0) },
			n.renewals,
		},
	}
	pods := controller.Loop{
		Name: "hollow-pods", Log: n.Log, Clock: n.Clock, Workers: 4, Reconcile: n.reconcile,
		Inputs: []controller.Input{controller.Self(n.pods), controller.On(n.nodes, n.waiting)},
	}
	var group sync.WaitGroup
	errs := make(chan error, 2)
	for _, loop := range []*controller.Loop{&registration, &pods} {
		group.Go(func() { errs <- loop.Run(ctx) })
	}
	group.Wait()
	for range 2 {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// register maintains the Node object as a kubelet does. It creates a missing Node, and sets Ready
// again if another client has changed it.
func (n *node) register(ctx context.Context, _ controller.Key) (controller.Result, error) {
	have, ok := n.nodes.Get("", n.Node.Name)
	if !ok {
		made := n.Node.DeepCopy()
		if made.Labels == nil {
			made.Labels = map[string]string{}
		}
		for label, value := range map[string]string{corev1.LabelHostname: made.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"} {
			if _, has := made.Labels[label]; !has {
				made.Labels[label] = value
			}
		}
		made.Status = n.status(&corev1.NodeStatus{})
		_, err := client.Create(ctx, n.Client, made)
		if err == nil || apierrors.IsAlreadyExists(err) {
			n.Registered()
			return controller.Result{After: statusEvery}, nil
		}
		return controller.Result{}, err
	}
	status := n.status(&have.Status)
	if settled(&have.Status, &status) && time.Since(heartbeat(&have.Status)) < statusEvery {
		n.Registered()
		return controller.Result{After: statusEvery}, nil
	}
	if err := n.report(ctx, have, &status); err != nil {
		return controller.Result{}, err
	}
	n.Registered()
	return controller.Result{After: statusEvery}, nil
}

// report patches only the status. An update would also write the other fields, and a node may not
// remove taints that another client has set meanwhile.
func (n *node) report(ctx context.Context, have *corev1.Node, status *corev1.NodeStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": have.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = client.Patch[*corev1.Node](ctx, n.Client, "", n.Node.Name, types.MergePatchType, patch, "status")
	if apierrors.IsNotFound(err) {
		return nil // the Node was deleted; that event brings us back
	}
	return err
}

// settled reports whether two statuses differ only in heartbeats.
func settled(a, b *corev1.NodeStatus) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	for i := range x.Conditions {
		x.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	for i := range y.Conditions {
		y.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return equality.Semantic.DeepEqual(x, y)
}

func heartbeat(s *corev1.NodeStatus) time.Time {
	for i := range s.Conditions {
		if s.Conditions[i].Type == corev1.NodeReady {
			return s.Conditions[i].LastHeartbeatTime.Time
		}
	}
	return time.Time{}
}

// nodeConditions are the conditions that a kubelet maintains.
var nodeConditions = []struct {
	kind    corev1.NodeConditionType
	status  corev1.ConditionStatus
	reason  string
	message string
}{
	{corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
	{corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
	{corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
	{corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "this node runs pods on paper"},
}

func (n *node) status(old *corev1.NodeStatus) corev1.NodeStatus {
	s := *old.DeepCopy()
	s.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	for name, quantity := range old.Capacity { // extended resources added by a test
		if _, known := s.Capacity[name]; !known {
			s.Capacity[name] = quantity
		}
	}
	for name, quantity := range n.Node.Status.Capacity {
		s.Capacity[name] = quantity
	}
	s.Allocatable = s.Capacity.DeepCopy()
	s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.Address}, {Type: corev1.NodeHostName, Address: n.Node.Name}}
	s.NodeInfo = corev1.NodeSystemInfo{
		MachineID: n.Node.Name, SystemUUID: n.Node.Name, BootID: n.Node.Name, KernelVersion: "hollow", OSImage: "hollow", ContainerRuntimeVersion: "hollow://1.0.0",
		KubeletVersion: version.Kubernetes, OperatingSystem: "linux", Architecture: "amd64",
	}
	now := metav1.Now().Rfc3339Copy()
	for _, want := range nodeConditions {
		c := nodeCondition(&s, want.kind)
		if c.Status != want.status {
			c.LastTransitionTime = now
		}
		c.Status, c.Reason, c.Message, c.LastHeartbeatTime = want.status, want.reason, want.message, now
	}
	return s
}

func nodeCondition(s *corev1.NodeStatus, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	s.Conditions = append(s.Conditions, corev1.NodeCondition{Type: kind})
	return &s.Conditions[len(s.Conditions)-1]
}

// renewals renews the node's lease.
func (n *node) renewals(ctx context.Context, _ func(controller.Key, time.Duration)) {
	ticks := time.NewTicker(n.RenewEvery)
	defer ticks.Stop()
	for {
		if err := n.renew(ctx); err != nil && ctx.Err() == nil {
			n.Log.Warn("cannot renew a hollow node's lease", "node", n.Node.Name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

func (n *node) renew(ctx context.Context) error {
	name, seconds, now := n.Node.Name, int32(leaseSeconds), metav1.NowMicro()
	lease, err := client.Get[*coordinationv1.Lease](ctx, n.Client, corev1.NamespaceNodeLease, name)
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, n.Client, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
		})
		return err
	}
	if err != nil {
		return err
	}
	lease = lease.DeepCopy()
	lease.Spec.RenewTime = &now
	_, err = client.Update(ctx, n.Client, lease)
	return err
}
