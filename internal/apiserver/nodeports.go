package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/store"
)

// nodePortsKey is upstream's RangeAllocation of node ports: a bitmap of those taken.
const nodePortsKey = "/registry/ranges/servicenodeports"

var (
	errPortTaken = errors.New("provided port is already allocated")
	errNoPort    = errors.New("range is full")
)

var nodePortCodec = &storedCodec{hub: corev1.SchemeGroupVersion.WithKind("RangeAllocation"), stored: corev1.SchemeGroupVersion.WithKind("RangeAllocation")}

// portSet is the node ports that a Service holds, with the protocols that use each.
type portSet map[int32]bool

func newPortSet(ports []int32) portSet {
	set := portSet{}
	for _, p := range ports {
		set[p] = true
	}
	return set
}

// nodePorts are all node ports that a Service holds.
func nodePorts(svc *corev1.Service) []int32 {
	var out []int32
	for i := range svc.Spec.Ports {
		if p := svc.Spec.Ports[i].NodePort; p != 0 {
			out = append(out, p)
		}
	}
	if p := svc.Spec.HealthCheckNodePort; p != 0 {
		out = append(out, p)
	}
	return out
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

func balanced(svc *corev1.Service) bool { return svc.Spec.Type == corev1.ServiceTypeLoadBalancer }

func wantsHealthPort(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// setNodePorts takes the ports asked for, finds free ones for the rest, and gives back those no longer used.
func (s *Server) setNodePorts(ctx context.Context, t *txn, svc *corev1.Service, held portSet) error {
	wants := wantsNodePorts(svc)
	asked := nodePorts(svc)
	if !wants && !wantsHealthPort(svc) && len(asked) == 0 && len(held) == 0 {
		return nil
	}
	bitmap, err := s.loadPorts(ctx)
	if err != nil {
		return err
	}
	path := field.NewPath("spec", "ports")
	mine := portSet{}
	var errs field.ErrorList
	for i := range svc.Spec.Ports {
		port := svc.Spec.Ports[i].NodePort
		if port == 0 || mine[port] || !wantsNodePorts(svc) && !balanced(svc) {
			continue // two protocols of one port may share it; what may have no port is told so by the validation
		}
		mine[port] = true
		if held[port] {
			continue
		}
		if err := s.takePort(t, bitmap, port); err != nil {
			errs = append(errs, field.Invalid(path.Index(i).Child("nodePort"), port, err.Error()))
		}
	}
	if port := svc.Spec.HealthCheckNodePort; port != 0 && wantsHealthPort(svc) && !held[port] && !mine[port] {
		if err := s.takePort(t, bitmap, port); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("spec", "healthCheckNodePort"), port, err.Error()))
		}
	}
	if len(errs) > 0 && t.op.dryRun {
		t.late = invalidService(svc, errs)
		return nil
	}
	if len(errs) > 0 {
		return invalidService(svc, errs)
	}
	if err := s.fillPorts(t, svc, bitmap, wants); err != nil {
		return invalidService(svc, field.ErrorList{field.InternalError(path, fmt.Errorf("failed to allocate a nodePort: %w", err))})
	}
	now := newPortSet(nodePorts(svc))
	for port := range held {
		if !now[port] {
			bitmap.release(port)
		}
	}
	return bitmap.write(t)
}

// fillPorts finds free ports where the Service has none.
func (s *Server) fillPorts(t *txn, svc *corev1.Service, bitmap *portBitmap, wants bool) error {
	byPort := map[int32]int32{}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if !wants || p.NodePort != 0 {
			continue
		}
		if shared := byPort[p.Port]; shared != 0 { // the same port with another protocol
			p.NodePort = shared
			continue
		}
		port, err := s.freePort(t, bitmap)
		if err != nil {
			return err
		}
		p.NodePort, byPort[p.Port] = port, port
	}
	if wantsHealthPort(svc) && svc.Spec.HealthCheckNodePort == 0 {
		port, err := s.freePort(t, bitmap)
		if err != nil {
			return err
		}
		svc.Spec.HealthCheckNodePort = port
	}
	return nil
}

// takePort takes a port that is asked for.
func (s *Server) takePort(t *txn, bitmap *portBitmap, port int32) error {
	err := bitmap.take(port)
	s.metrics.allocation.port(t, scopeStatic, err)
	return err
}

// freePort takes any port.
func (s *Server) freePort(t *txn, bitmap *portBitmap) (int32, error) {
	port, err := bitmap.free()
	s.metrics.allocation.port(t, scopeDynamic, err)
	return port, err
}

// releaseNodePorts gives ports back in the transaction.
func (s *Server) releaseNodePorts(ctx context.Context, t *txn, release []int32) error {
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
	ports    PortRange
	obj      *corev1.RangeAllocation
	bits     *big.Int
	revision int64
	changed  bool
}

func (s *Server) loadPorts(ctx context.Context) (*portBitmap, error) {
	b := &portBitmap{ports: s.cfg.NodePorts, bits: new(big.Int), obj: &corev1.RangeAllocation{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: s.now()}}}
	kv, _, err := s.store.Get(ctx, nodePortsKey, 0)
	if err != nil {
		return nil, storeError(err)
	}
	rangeText := fmt.Sprintf("%d-%d", b.ports.Base, b.ports.Base+b.ports.Size-1)
	if kv != nil {
		obj, err := nodePortCodec.decode(kv.Value, kv.ModRevision)
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

// free takes a random port of the upper part; the lower one is for those who choose (KEP-3668), and used last.
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

// taken is how many ports are.
func (b *portBitmap) taken() (n int) {
	for _, word := range b.bits.Bits() {
		n += bits.OnesCount(uint(word))
	}
	return n
}

// write makes the new bitmap part of the transaction, on condition that nobody else changed it.
func (b *portBitmap) write(t *txn) error {
	if !b.changed {
		return nil
	}
	b.obj.Data = b.bits.Bytes()
	stored, err := nodePortCodec.encode(b.obj)
	if err != nil {
		return err
	}
	t.add(store.Condition{Key: nodePortsKey, ModRevision: b.revision}, store.Op{Key: nodePortsKey, Value: stored})
	return nil
}
