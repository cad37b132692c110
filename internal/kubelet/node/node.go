package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// Periods of heartbeats, as upstream.
const (
	// leaseRenewals is the number of renewals per lease duration.
	leaseRenewals = 4
	eagerPeriod   = 25 * time.Millisecond
)

// Config holds the content of the Node object and the callbacks behind it.
type Config struct {
	Name    string
	Client  client.Interface
	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService
	Machine Machine
	MaxPods int
	// LeaseDuration is the duration of the lease in whole seconds.
	LeaseDuration time.Duration
	Addresses     []string
	Labels        map[string]string
	// Annotations returns further annotations of the Node; may be nil.
	Annotations func() map[string]string
	// Owned returns an error if an existing Node belongs to another machine; may be nil.
	Owned         func(*corev1.Node) error
	Taints        []corev1.Taint
	Unschedulable bool
	// Reserved is kept from pods, and so is Threshold, the amount at which pods are evicted.
	Reserved, Threshold corev1.ResourceList
	// ReportPeriod is the longest time between two writes of the status, CheckPeriod the interval
	// for checking whether it has changed. Defaults: 5 minutes and 10 s.
	ReportPeriod, CheckPeriod time.Duration
	// MaxImages is the largest number of images in the status; -1 sets no limit.
	MaxImages  int
	ProviderID string
	// Unregistered means that another program creates the Node.
	Unregistered bool
	Port         int32
	// Pressure returns the pressures that the node is under.
	Pressure func() Pressure
	// Healthy returns an error if the node agent does not work.
	Healthy func() error
	// Devices returns the devices by resource: all and the healthy ones. May be nil.
	Devices func() (capacity, allocatable corev1.ResourceList)
	// ForgetDevices means that counts of devices in an existing Node are out of date.
	ForgetDevices bool
	// VolumesInUse lists attached volumes; may be nil.
	VolumesInUse func() []corev1.UniqueVolumeName
	Events       client.Recorder
	Now          func() time.Time
	Log          *slog.Logger
}

// Pressure lists the resources that the node is running out of.
type Pressure struct{ Memory, Disk, PID bool }

// Manager keeps the Node object and its lease. It is safe for concurrent use.
type Manager struct {
	Config
	kick  chan struct{}
	ready atomic.Bool
	quiet bool // no events about conditions, because the node's earlier ones are unknown

	mu       sync.Mutex
	written  time.Time
	uid      string
	runtime  *runtimeapi.VersionResponse
	handlers []corev1.NodeRuntimeHandler
	features *corev1.NodeFeatures
	networkE error
}

// New makes a Manager.
func New(c Config) *Manager {
	c.ReportPeriod, c.CheckPeriod = cmp.Or(c.ReportPeriod, 5*time.Minute), cmp.Or(c.CheckPeriod, 10*time.Second)
	return &Manager{Config: c, kick: make(chan struct{}, 1)}
}

// Kick makes the manager check at once whether the status has changed.
func (m *Manager) Kick() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Capacity returns the capacity of the machine.
func (m *Manager) Capacity() corev1.ResourceList {
	out := m.Machine.Capacity(m.MaxPods)
	if m.Devices != nil {
		devices, _ := m.Devices()
		maps.Copy(out, devices)
	}
	return out
}

// Allocatable is the capacity minus the reservations and the eviction thresholds.
func (m *Manager) Allocatable() corev1.ResourceList {
	var pages resource.Quantity // pods cannot use the memory of huge pages as memory
	for _, bytes := range m.Machine.HugePages {
		pages.Add(*resource.NewQuantity(bytes, resource.BinarySI))
	}
	out := less(less(m.Capacity(), m.Reserved), m.Threshold)
	out = less(out, corev1.ResourceList{corev1.ResourceMemory: pages})
	if m.Devices != nil {
		_, devices := m.Devices()
		maps.Copy(out, devices)
	}
	return out
}

// ForPods is the limit of all pods together: the capacity minus the reservations.
func (m *Manager) ForPods() corev1.ResourceList { return less(m.Capacity(), m.Reserved) }

// less subtracts resources from out, down to zero.
func less(out, resources corev1.ResourceList) corev1.ResourceList {
	for name, q := range resources {
		if have, ok := out[name]; ok {
			have.Sub(q)
			if have.Sign() < 0 {
				have.Set(0)
			}
			out[name] = have
		}
	}
	return out
}

// RecursiveReadOnly reports whether the runtime handler supports recursive read-only mounts.
func (m *Manager) RecursiveReadOnly(handler string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.handlers {
		if h.Name == handler && h.Features != nil {
			return h.Features.RecursiveReadOnlyMounts != nil && *h.Features.RecursiveReadOnlyMounts
		}
	}
	return false
}

// RuntimeName returns the runtime's name, which is the prefix of container ids.
func (m *Manager) RuntimeName() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runtime.GetRuntimeName()
}

// AskRuntime reads the runtime's version, health and features.
func (m *Manager) AskRuntime(ctx context.Context) error {
	version, err := m.Runtime.Version(ctx, "v1")
	if err != nil {
		return fmt.Errorf("container runtime is down: %w", err)
	}
	st, err := m.Runtime.Status(ctx, false)
	if err != nil {
		return fmt.Errorf("container runtime status check may not have completed yet: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runtime, m.networkE = version, nil
	for _, c := range st.GetStatus().GetConditions() {
		switch { // other conditions of the runtime are informational
		case c.Status:
		case c.Type == runtimeapi.NetworkReady:
			m.networkE = fmt.Errorf("container runtime network not ready: NetworkReady=false reason:%s message:%s", c.Reason, c.Message)
		case c.Type == runtimeapi.RuntimeReady:
			return fmt.Errorf("container runtime not ready: RuntimeReady=false reason:%s message:%s", c.Reason, c.Message)
		}
	}
	m.handlers = nil
	for _, h := range st.RuntimeHandlers {
		f := &corev1.NodeRuntimeHandlerFeatures{}
		if h.Features != nil {
			f.RecursiveReadOnlyMounts, f.UserNamespaces = ptr(h.Features.RecursiveReadOnlyMounts), ptr(h.Features.UserNamespaces)
		}
		m.handlers = append(m.handlers, corev1.NodeRuntimeHandler{Name: h.Name, Features: f})
	}
	sort.Slice(m.handlers, func(i, j int) bool { return m.handlers[i].Name < m.handlers[j].Name })
	m.features = nil
	if f := st.Features; f != nil {
		m.features = &corev1.NodeFeatures{SupplementalGroupsPolicy: ptr(f.SupplementalGroupsPolicy)}
	}
	return nil
}

func ptr[T any](v T) *T { return &v }

// Run registers the node and keeps its status and lease current until ctx ends. It returns an error
// if the Node belongs to another machine.
func (m *Manager) Run(ctx context.Context) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 7*time.Second) {
		err := m.register(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		var taken notOwnedError
		if errors.As(err, &taken) {
			return taken.error
		}
		m.Log.Warn("cannot register the node; trying again", "node", m.Name, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		m.keepLease(ctx)
	}()
	defer wg.Wait()
	defer cancel()
	for soon := eagerPeriod; ; {
		err := m.report(ctx)
		var taken notOwnedError
		if errors.As(err, &taken) {
			return taken.error
		}
		if err != nil && ctx.Err() == nil {
			m.Log.Warn("cannot write the node's status", "node", m.Name, "error", err)
		}
		wait := m.CheckPeriod
		if m.ready.Load() {
			soon = eagerPeriod
		} else {
			// The missing part (at first, the pod network) is usually ready within a moment.
			wait, soon = soon, min(2*soon, m.CheckPeriod)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		case <-m.kick:
		}
	}
}

// notOwnedError is the error of a Node that belongs to another machine.
type notOwnedError struct{ error }

func (m *Manager) owned(n *corev1.Node) error {
	if m.Owned == nil {
		return nil
	}
	if err := m.Owned(n); err != nil {
		return notOwnedError{err}
	}
	return nil
}

// register creates the Node object or updates the existing one.
func (m *Manager) register(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Labels: m.labels(), Annotations: map[string]string{
		"volumes.kubernetes.io/controller-managed-attach-detach": "true",
	}}}
	maps.Copy(node.Annotations, m.annotations())
	node.Spec.Taints, node.Spec.Unschedulable, node.Spec.ProviderID = m.Taints, m.Unschedulable, m.ProviderID
	m.quiet = true
	node.Status = m.build(ctx, &corev1.NodeStatus{})
	m.quiet = false
	if !m.Unregistered {
		made, err := client.Create(ctx, m.Client, node)
		if err == nil {
			m.registered(made)
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create node %s: %w", m.Name, err)
		}
	}
	have, err := client.Get[*corev1.Node](ctx, m.Client, "", m.Name)
	if err != nil {
		return fmt.Errorf("get node %s: %w", m.Name, err)
	}
	if err := m.owned(have); err != nil {
		return err
	}
	update := have.DeepCopy()
	if update.Labels == nil {
		update.Labels = map[string]string{}
	}
	maps.Copy(update.Labels, m.labels())
	if update.Spec.ProviderID == "" {
		update.Spec.ProviderID = m.ProviderID
	}
	for k, v := range m.annotations() {
		metav1.SetMetaDataAnnotation(&update.ObjectMeta, k, v)
	}
	if !equality.Semantic.DeepEqual(update, have) {
		if have, err = client.Update(ctx, m.Client, update); err != nil {
			return fmt.Errorf("update node %s: %w", m.Name, err)
		}
	}
	m.registered(have)
	return nil
}

// forgetDevices sets the counts of devices to zero in an existing Node. They belong to plugins that
// this node agent has never seen.
func (m *Manager) forgetDevices(s *corev1.NodeStatus) {
	for _, list := range []corev1.ResourceList{s.Capacity, s.Allocatable} {
		for name := range list {
			if strings.Contains(string(name), "/") {
				list[name] = *resource.NewQuantity(0, resource.DecimalSI)
			}
		}
	}
}

func (m *Manager) registered(n *corev1.Node) {
	m.mu.Lock()
	m.uid = string(n.UID)
	m.mu.Unlock()
	m.Events.Eventf(m.Reference(), nil, corev1.EventTypeNormal, "Starting", "Starting", "Starting kubelet.")
}

// Reference is the object reference for events about the node.
func (m *Manager) Reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: m.Name, UID: types.UID(m.Name)}
}

func (m *Manager) annotations() map[string]string {
	if m.Annotations == nil {
		return nil
	}
	return m.Annotations()
}

func (m *Manager) labels() map[string]string {
	hostname, err := os.Hostname()
	if err != nil || m.Name != hostname {
		hostname = m.Name
	}
	labels := map[string]string{
		corev1.LabelHostname: hostname, corev1.LabelOSStable: m.Machine.OS, corev1.LabelArchStable: m.Machine.Architecture,
		"beta.kubernetes.io/os": m.Machine.OS, "beta.kubernetes.io/arch": m.Machine.Architecture,
	}
	for k, v := range m.Labels {
		labels[k] = v
	}
	return labels
}

// report writes the node's status if it has changed or if the last write is ReportPeriod old.
func (m *Manager) report(ctx context.Context) error {
	have, err := client.Get[*corev1.Node](ctx, m.Client, "", m.Name)
	if apierrors.IsNotFound(err) {
		// The Node was deleted while this node is running: create it again.
		return m.register(ctx)
	}
	if err != nil {
		return err
	}
	if err := m.owned(have); err != nil {
		return err
	}
	update := have.DeepCopy()
	before := have.Status.DeepCopy()
	if m.ForgetDevices {
		m.forgetDevices(before)
	}
	update.Status = m.build(ctx, before)
	now := m.Now()
	if same(&have.Status, &update.Status) && now.Sub(m.written) < m.ReportPeriod {
		m.ForgetDevices = false
		return nil
	}
	if _, err := client.UpdateStatus(ctx, m.Client, update); err != nil {
		if apierrors.IsConflict(err) {
			m.Kick()
			return nil
		}
		return err
	}
	m.written, m.ForgetDevices = now, false
	return nil
}

// same compares two statuses except for heartbeat times.
func same(a, b *corev1.NodeStatus) bool {
	strip := func(s *corev1.NodeStatus) *corev1.NodeStatus {
		s = s.DeepCopy()
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		return s
	}
	return equality.Semantic.DeepEqual(strip(a), strip(b))
}

// keepLease renews the node's lease.
func (m *Manager) keepLease(ctx context.Context) {
	tick := time.NewTicker(m.LeaseDuration / leaseRenewals)
	defer tick.Stop()
	for {
		if err := m.renew(ctx); err != nil && ctx.Err() == nil {
			m.Log.Warn("cannot renew the node's lease", "node", m.Name, "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (m *Manager) renew(ctx context.Context) error {
	now := metav1.NewMicroTime(m.Now())
	seconds := int32(m.LeaseDuration / time.Second)
	lease, err := client.Get[*coordinationv1.Lease](ctx, m.Client, corev1.NamespaceNodeLease, m.Name)
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: m.Name}}
		if node, err := client.Get[*corev1.Node](ctx, m.Client, "", m.Name); err == nil {
			lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: m.Name, UID: node.UID}}
		}
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &m.Name, LeaseDurationSeconds: &seconds, RenewTime: &now}
		_, err = client.Create(ctx, m.Client, lease)
		return err
	}
	if err != nil {
		return err
	}
	update := lease.DeepCopy()
	update.Spec.HolderIdentity, update.Spec.LeaseDurationSeconds, update.Spec.RenewTime = &m.Name, &seconds, &now
	_, err = client.Update(ctx, m.Client, update)
	return err
}

func addresses(name string, ips []string) []corev1.NodeAddress {
	var out []corev1.NodeAddress
	for _, ip := range ips {
		if net.ParseIP(ip) != nil {
			out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		}
	}
	return append(out, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
}
