package service

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/store"
)

const (
	labelIPFamily  = networkingv1.LabelIPAddressFamily
	labelManagedBy = networkingv1.LabelManagedBy
	// managedByAllocator marks the IPAddress objects that belong to Services.
	managedByAllocator = "ipallocator.k8s.io"
	// randomTries is how many random addresses are tried before a search in order.
	randomTries = 32
)

var (
	errAddressTaken = errors.New("provided IP is already allocated")
	errOutOfRange   = errors.New("the provided network does not match the current range")
	errNoAddress    = errors.New("range is full")
)

// AddressRange is one Service range.
type AddressRange struct{ netip.Prefix }

// size returns the number of addresses; large IPv6 ranges count as 2^32.
func (r AddressRange) size() uint64 {
	bits := r.Addr().BitLen() - r.Bits()
	if bits > 32 {
		bits = 32
	}
	return 1 << bits
}

// At returns the address at an offset from the first one.
func (r AddressRange) At(offset uint64) netip.Addr {
	base := r.Masked().Addr()
	n := new(big.Int).SetBytes(base.AsSlice())
	n.Add(n, new(big.Int).SetUint64(offset))
	raw := n.FillBytes(make([]byte, len(base.AsSlice())))
	addr, _ := netip.AddrFromSlice(raw)
	return addr
}

// usable excludes the network's own address and, for IPv4, the broadcast address.
func (r AddressRange) usable(addr netip.Addr) bool {
	if !r.Contains(addr) || addr == r.Masked().Addr() {
		return false
	}
	return !addr.Is4() || addr != r.At(r.size()-1)
}

// staticBand returns the size of the lower part of a range, which is left for addresses that users
// choose (KEP-3070).
func (r AddressRange) staticBand() uint64 {
	const least, most, share = 16, 256, 16
	n := r.size()
	if n <= least {
		return 0
	}
	return min(max(n/share, least), most)
}

// serviceRanges returns the ranges of one family in the ready ServiceCIDR objects. The configured
// ranges count only until the default object, which is created from them, exists. So Services can
// move to other ranges when that object is changed or deleted.
func (s *Allocator) serviceRanges(ctx context.Context, family corev1.IPFamily) []AddressRange {
	var out []AddressRange
	add := func(p netip.Prefix) {
		for _, have := range out {
			if have.Prefix == p {
				return
			}
		}
		if familyOf(p.Addr()) == family {
			out = append(out, AddressRange{p})
		}
	}
	configured := func() []AddressRange {
		for _, p := range s.CIDRs {
			add(p.Masked())
		}
		return out
	}
	r := s.Kinds.Registry("networking.k8s.io", "servicecidrs")
	if r == nil {
		return configured()
	}
	reader, err := r.Cache(ctx)
	if err != nil {
		return configured()
	}
	if _, ok := reader.Snapshot().Get(r.Key("", DefaultServiceCIDR)); !ok {
		configured()
	}
	reader.Snapshot().Ascend(r.Prefix(""), r.Prefix(""), func(e *cache.Entry) bool {
		cidr, err := registry.ObjectOf[*networkingv1.ServiceCIDR](e)
		if err != nil || cidr.DeletionTimestamp != nil || !meta.IsStatusConditionTrue(cidr.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
			return true
		}
		for _, text := range cidr.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				add(p.Masked())
			}
		}
		return true
	})
	return out
}

// addresses returns the existing IPAddress objects.
func (s *Allocator) addresses(ctx context.Context) (*registry.Registry, *cache.Snapshot, error) {
	r := s.Kinds.Registry("networking.k8s.io", "ipaddresses")
	if r == nil {
		return nil, nil, wire.ErrPathNotFound
	}
	reader, err := r.Cache(ctx)
	if err != nil {
		return nil, nil, err
	}
	return r, reader.Snapshot(), nil
}

// reserveAddress takes the address that a Service requests.
func (s *Allocator) reserveAddress(ctx context.Context, t *registry.Transaction, svc *corev1.Service, ip string) error {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return err
	}
	since, ranges := time.Now(), s.serviceRanges(ctx, familyOf(addr))
	// Its address is the configured one; without it no server can start.
	if svc.Namespace == metav1.NamespaceDefault && svc.Name == KubernetesServiceName {
		for _, p := range s.CIDRs {
			ranges = append(ranges, AddressRange{p.Masked()})
		}
	}
	at := slices.IndexFunc(ranges, func(r AddressRange) bool { return r.usable(addr) })
	if at < 0 {
		if len(ranges) == 0 || !t.DryRun {
			return errOutOfRange
		}
		return fmt.Errorf("the provided IP (%v) is not in the valid range. The range of valid IPs is %s", ip, ranges[0])
	}
	r, taken, err := s.addresses(ctx)
	if err != nil {
		return err
	}
	_, used := taken.Get(r.Key("", addr.String()))
	if used { // in the cache, which may be stale; the store decides
		kv, _, err := r.Place.Store.Get(ctx, r.Key("", addr.String()), 0)
		if err != nil {
			return wire.StoreError(err)
		}
		used = kv != nil
	}
	if used {
		err = errAddressTaken
	} else {
		err = s.addAddress(t, r, svc, addr)
	}
	s.Metrics.address(t, ranges[at], scopeStatic, since, err)
	return err
}

// holdsAddress reports whether the address already belongs to the Service.
func (s *Allocator) holdsAddress(ctx context.Context, svc *corev1.Service, ip string) bool {
	r, taken, err := s.addresses(ctx)
	if err != nil {
		return false
	}
	e, ok := taken.Get(r.Key("", ip))
	if !ok {
		return false
	}
	address, err := registry.ObjectOf[*networkingv1.IPAddress](e)
	if err != nil || address.Spec.ParentRef == nil {
		return false
	}
	return *address.Spec.ParentRef == networkingv1.ParentReference{Resource: "services", Namespace: svc.Namespace, Name: svc.Name}
}

// freeAddress takes a free address of the family: a random one of the upper part of a range, else
// any that is left.
func (s *Allocator) freeAddress(ctx context.Context, t *registry.Transaction, svc *corev1.Service, family corev1.IPFamily) (string, error) {
	r, taken, err := s.addresses(ctx)
	if err != nil {
		return "", err
	}
	for _, in := range s.serviceRanges(ctx, family) {
		since := time.Now()
		addr, ok := in.free(func(addr netip.Addr) bool {
			_, used := taken.Get(r.Key("", addr.String()))
			return used
		})
		if !ok {
			s.Metrics.address(t, in, scopeDynamic, since, errNoAddress)
			continue
		}
		err := s.addAddress(t, r, svc, addr)
		s.Metrics.address(t, in, scopeDynamic, since, err)
		return addr.String(), err
	}
	return "", errNoAddress
}

// free returns an unused address.
func (r AddressRange) free(used func(netip.Addr) bool) (addr netip.Addr, ok bool) {
	band, size := r.staticBand(), r.size()
	for range randomTries {
		if addr = r.At(band + rand.Uint64N(size-band)); r.usable(addr) && !used(addr) {
			return addr, true
		}
	}
	// Nearly full: search downwards, so that the static part is used last.
	for offset := size - 1; offset > 0 && size <= 1<<20; offset-- {
		if addr = r.At(offset); r.usable(addr) && !used(addr) {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// addAddress adds the Service's IPAddress to the transaction, on condition that it does not exist.
func (s *Allocator) addAddress(t *registry.Transaction, r *registry.Registry, svc *corev1.Service, addr netip.Addr) error {
	obj := &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: addr.String(), UID: types.UID(uuid.NewString()), CreationTimestamp: s.Kinds.Shared.Now(),
			Labels: map[string]string{labelIPFamily: string(familyOf(addr)), labelManagedBy: managedByAllocator},
		},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: svc.Namespace, Name: svc.Name}},
	}
	if e, ok := s.Kinds.Find(networkingv1.SchemeGroupVersion.WithResource("ipaddresses")); ok {
		obj = s.Owned(e, obj).(*networkingv1.IPAddress)
	}
	stored, err := r.Codec.Encode(obj)
	if err != nil {
		return err
	}
	key := r.Key("", addr.String())
	t.Add(store.Condition{Key: key}, store.Op{Key: key, Value: stored})
	return nil
}

// releaseAddresses deletes the IPAddresses of a Service in the transaction.
func (s *Allocator) releaseAddresses(t *registry.Transaction, ips []string) {
	r := s.Kinds.Registry("networking.k8s.io", "ipaddresses")
	for _, ip := range ips {
		addr, err := netip.ParseAddr(ip)
		if err != nil || r == nil {
			continue
		}
		t.Ops = append(t.Ops, store.Op{Key: r.Key("", addr.String()), Delete: true})
	}
}
