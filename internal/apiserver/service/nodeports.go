package service

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/store"
)

// nodePortsKey is upstream's RangeAllocation of node ports: a bitmap of the taken ones.
const nodePortsKey = "/registry/ranges/servicenodeports"

var (
	errPortTaken = errors.New("provided port is already allocated")
	errNoPort    = errors.New("range is full")
)

var nodePortCodec = &wire.StoredCodec{Hub: corev1.SchemeGroupVersion.WithKind("RangeAllocation"), Stored: corev1.SchemeGroupVersion.WithKind("RangeAllocation")}

// nodePorts returns all node ports that a Service holds. A Service of another type may name some,
// but does not hold them.
func nodePorts(svc *corev1.Service) []int32 {
	if !mayHaveNodePorts(svc) {
		return nil
	}
	out := trafficPorts(svc)
	if p := svc.Spec.HealthCheckNodePort; p != 0 {
		out = append(out, p)
	}
	return out
}

// trafficPorts returns the node ports in the Service's own ports.
func trafficPorts(svc *corev1.Service) []int32 {
	var out []int32
	for i := range svc.Spec.Ports {
		if p := svc.Spec.Ports[i].NodePort; p != 0 {
			out = append(out, p)
		}
	}
	return out
}

func mayHaveNodePorts(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.Type == corev1.ServiceTypeLoadBalancer
}

func wantsNodePorts(svc *corev1.Service) bool {
	switch svc.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeLoadBalancer:
		return svc.Spec.AllocateLoadBalancerNodePorts == nil || *svc.Spec.AllocateLoadBalancerNodePorts
	}
	return false
}

func wantsHealthPort(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// setNodePorts takes the requested ports, finds free ones for the rest, and releases those no
// longer used. old is nil for a new Service.
func (s *Allocator) setNodePorts(ctx context.Context, t *registry.Transaction, svc, old *corev1.Service) error {
	var held []int32
	if old != nil {
		held = nodePorts(old)
	}
	if !mayHaveNodePorts(svc) && len(held) == 0 {
		return nil
	}
	bitmap, err := s.loadPorts(ctx)
	if err != nil {
		return err
	}
	bitmap.onAllocate = func(scope string, err error) { s.Metrics.port(t, scope, err) }
	if refused := bitmap.assign(svc, old); refused != nil {
		err := invalidService(svc, field.ErrorList{refused})
		if t.DryRun {
			t.DryRunErr = err
			return nil
		}
		return err
	}
	now := nodePorts(svc)
	for _, port := range held {
		if !slices.Contains(now, port) {
			bitmap.release(port)
		}
	}
	return bitmap.write(t)
}

// assign gives the Service its ports. It returns only the first error.
func (b *portBitmap) assign(svc, old *corev1.Service) *field.Error {
	if !mayHaveNodePorts(svc) {
		return nil
	}
	var refused *field.Error
	if old == nil {
		refused = b.assignNew(svc)
	} else {
		refused = b.assignChanged(svc, old)
	}
	// An existing port stays: validation refuses a change.
	if refused != nil || !wantsHealthPort(svc) || old != nil && wantsHealthPort(old) && old.Spec.HealthCheckNodePort != 0 {
		return refused
	}
	return b.takeOrFind(&svc.Spec.HealthCheckNodePort, field.NewPath("spec", "healthCheckNodePort"))
}

// assignNew gives ports of the same number, which differ in protocol, the same node port, unless
// the Service requests others.
func (b *portBitmap) assignNew(svc *corev1.Service) *field.Error {
	wants := wantsNodePorts(svc)
	byNumber := map[int32][]int32{}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		taken := byNumber[p.Port]
		switch {
		case p.NodePort == 0 && !wants:
			continue
		case p.NodePort == 0 && len(taken) > 0:
			p.NodePort = taken[0]
			continue
		case p.NodePort == 0:
			p.NodePort = requestedNodePort(svc, p.Port)
		case slices.Contains(taken, p.NodePort):
			continue
		}
		if refused := b.takeOrFind(&p.NodePort, portPath(i)); refused != nil {
			return refused
		}
		byNumber[p.Port] = append(taken, p.NodePort)
	}
	return nil
}

// requestedNodePort returns the first node port that is set for a port of this number, 0 if none
// is.
func requestedNodePort(svc *corev1.Service, number int32) int32 {
	for _, p := range svc.Spec.Ports {
		if p.Port == number && p.NodePort != 0 {
			return p.NodePort
		}
	}
	return 0
}

// assignChanged keeps the Service's node ports, takes new ones that it requests, and finds one for
// each port without.
func (b *portBitmap) assignChanged(svc, old *corev1.Service) *field.Error {
	wants := wantsNodePorts(svc)
	var mine []int32
	if mayHaveNodePorts(old) {
		mine = trafficPorts(old)
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.NodePort == 0 && !wants || p.NodePort != 0 && slices.Contains(mine, p.NodePort) {
			continue
		}
		if refused := b.takeOrFind(&p.NodePort, portPath(i)); refused != nil {
			return refused
		}
		mine = append(mine, p.NodePort)
	}
	return nil
}

func portPath(i int) *field.Path { return field.NewPath("spec", "ports").Index(i).Child("nodePort") }

// releaseNodePorts releases ports in the transaction.
func (s *Allocator) releaseNodePorts(ctx context.Context, t *registry.Transaction, release []int32) error {
	if len(release) == 0 {
		return nil
	}
	bitmap, err := s.loadPorts(ctx)
	if err != nil {
		return err
	}
	for _, port := range release {
		bitmap.release(port)
	}
	return bitmap.write(t)
}

// portBitmap is the RangeAllocation as it was read.
type portBitmap struct {
	ports      PortRange
	obj        *corev1.RangeAllocation
	bits       *big.Int
	revision   int64
	changed    bool
	onAllocate func(scope string, err error) // gets the result of each allocation; may be nil
}

func (b *portBitmap) allocated(scope string, err error) {
	if b.onAllocate != nil {
		b.onAllocate(scope, err)
	}
}

func (s *Allocator) loadPorts(ctx context.Context) (*portBitmap, error) {
	b := &portBitmap{ports: s.Ports, bits: new(big.Int), obj: &corev1.RangeAllocation{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: s.Kinds.Shared.Now()}}}
	kv, _, err := s.Kinds.Shared.Home.Store.Get(ctx, nodePortsKey, 0)
	if err != nil {
		return nil, wire.StoreError(err)
	}
	rangeText := fmt.Sprintf("%d-%d", b.ports.Base, b.ports.Base+b.ports.Size-1)
	if kv != nil {
		obj, err := nodePortCodec.Decode(kv.Value, kv.ModRevision)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", nodePortsKey, err)
		}
		b.obj, b.revision = obj.(*corev1.RangeAllocation), kv.ModRevision
		if b.obj.Range == rangeText {
			b.bits.SetBytes(b.obj.Data)
		}
	}
	b.obj.Range = rangeText
	return b, nil
}

// takeOrFind takes the named port, or finds a free one if it is 0.
func (b *portBitmap) takeOrFind(port *int32, at *field.Path) *field.Error {
	if *port != 0 {
		err := b.take(*port)
		b.allocated(scopeStatic, err)
		if err != nil {
			return field.Invalid(at, *port, err.Error())
		}
		return nil
	}
	free, err := b.free()
	b.allocated(scopeDynamic, err)
	if err != nil {
		return field.InternalError(at, fmt.Errorf("failed to allocate a nodePort: %w", err))
	}
	*port = free
	return nil
}

func (b *portBitmap) take(port int32) error {
	offset := int(port) - b.ports.Base
	if offset < 0 || offset >= b.ports.Size {
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", b.obj.Range)
	}
	if b.bits.Bit(offset) == 1 {
		return errPortTaken
	}
	b.bits.SetBit(b.bits, offset, 1)
	b.changed = true
	return nil
}

func (b *portBitmap) release(port int32) {
	if offset := int(port) - b.ports.Base; offset >= 0 && offset < b.ports.Size && b.bits.Bit(offset) == 1 {
		b.bits.SetBit(b.bits, offset, 0)
		b.changed = true
	}
}

// free takes a random port of the upper part. The lower part is for ports that users choose
// (KEP-3668) and is used last.
func (b *portBitmap) free() (int32, error) {
	const least, most, share = 16, 128, 32
	band := 0
	if b.ports.Size > least {
		band = min(max(b.ports.Size/share, least), most)
	}
	upper := b.ports.Size - band
	start := rand.IntN(upper)
	for i := range b.ports.Size {
		offset := band + (start+i)%upper
		if i >= upper {
			offset = b.ports.Size - 1 - i
		}
		if b.bits.Bit(offset) == 0 {
			b.bits.SetBit(b.bits, offset, 1)
			b.changed = true
			return int32(b.ports.Base + offset), nil
		}
	}
	return 0, errNoPort
}

// count returns the number of taken ports.
func (b *portBitmap) count() (n int) {
	for _, word := range b.bits.Bits() {
		n += bits.OnesCount(uint(word))
	}
	return n
}

// write adds the new bitmap to the transaction, on condition that it was not changed meanwhile.
func (b *portBitmap) write(t *registry.Transaction) error {
	if !b.changed {
		return nil
	}
	b.obj.Data = b.bits.Bytes()
	stored, err := nodePortCodec.Encode(b.obj)
	if err != nil {
		return err
	}
	t.Add(store.Condition{Key: nodePortsKey, ModRevision: b.revision}, store.Op{Key: nodePortsKey, Value: stored})
	return nil
}
