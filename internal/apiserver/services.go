package apiserver

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/api"
)

// services gives Services their addresses and node ports.
type services struct {
	kinds   *endpoints
	metrics *allocationMetrics
	// cidrs are where cluster IPs come from: one range, or two of different families.
	cidrs []netip.Prefix
	// ports are where node ports come from.
	ports PortRange
	// owned records in a new object's managedFields that the API server has set its fields.
	owned func(kind *endpoint, obj runtime.Object) runtime.Object
}

// hooks allocate addresses and ports in the transaction that writes the Service. So no
// address is ever taken without a Service that has it, and nothing needs repair.
func (s *services) hooks() hooks {
	return hooks{
		create: func(ctx context.Context, t *txn, obj runtime.Object) error {
			return s.allocateService(ctx, t, obj.(*corev1.Service), nil)
		},
		update: func(ctx context.Context, t *txn, obj, old runtime.Object) error {
			return s.allocateService(ctx, t, obj.(*corev1.Service), old.(*corev1.Service))
		},
		remove: func(ctx context.Context, t *txn, old runtime.Object) error {
			gone := old.(*corev1.Service)
			t.refresh = s.refresh
			s.releaseAddresses(t, clusterIPs(gone))
			return s.releaseNodePorts(ctx, t, nodePorts(gone))
		},
	}
}

// refresh waits until the cache of addresses has what stood in a transaction's way.
func (s *services) refresh(ctx context.Context, revision int64) {
	if r := s.kinds.registry("networking.k8s.io", "ipaddresses"); r != nil {
		r.settle(ctx, revision)
	}
}

// allocateService allocates the addresses and ports that the Service lacks, and releases those that
// it no longer needs.
func (s *services) allocateService(ctx context.Context, t *txn, svc, old *corev1.Service) error {
	var before []string
	var settled int
	var had string
	if old != nil {
		before, had = clusterIPs(old), old.Spec.ClusterIP
		if old.Spec.Type != corev1.ServiceTypeExternalName {
			settled = len(old.Spec.ClusterIPs)
		}
	}
	t.refresh = s.refresh
	if svc.Spec.Type != corev1.ServiceTypeExternalName {
		if errs := s.settleFamilies(svc, old); len(errs) > 0 {
			return invalidService(svc, errs)
		}
		if err := s.setClusterIPs(ctx, t, svc, settled, had); err != nil {
			return err
		}
	}
	after := clusterIPs(svc)
	s.releaseAddresses(t, slices.DeleteFunc(slices.Clone(before), func(ip string) bool { return slices.Contains(after, ip) }))
	return s.setNodePorts(ctx, t, svc, old)
}

func invalidService(svc *corev1.Service, errs field.ErrorList) error {
	return api.Invalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), svc.Name, errs)
}

// clusterIPs returns the addresses that a Service holds.
func clusterIPs(svc *corev1.Service) []string {
	if svc.Spec.Type == corev1.ServiceTypeExternalName || headless(svc) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(svc.Spec.ClusterIPs), func(ip string) bool { return ip == "" })
}

func headless(svc *corev1.Service) bool {
	return svc.Spec.ClusterIP == corev1.ClusterIPNone || len(svc.Spec.ClusterIPs) > 0 && svc.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func familyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() || addr.Is4In6() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// setClusterIPs takes the requested addresses, and any free one for families without. The first
// settled ones must not change; validation reports that. had is the Service's previous address: it
// may be the Service's own without being in clusterIPs, which Services from before Kubernetes 1.20
// lack.
func (s *services) setClusterIPs(ctx context.Context, t *txn, svc *corev1.Service, settled int, had string) error {
	spec := &svc.Spec
	if headless(svc) {
		spec.ClusterIP, spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		return nil
	}
	path := field.NewPath("spec", "clusterIPs")
	for i, family := range spec.IPFamilies {
		if i < len(spec.ClusterIPs) && spec.ClusterIPs[i] != "" {
			if i < settled {
				continue
			}
			ip := spec.ClusterIPs[i]
			if ip == had && s.holds(ctx, svc, ip) {
				continue
			}
			if err := s.reserveAddress(ctx, t, svc, ip); err != nil {
				return invalidService(svc, field.ErrorList{field.Invalid(path, spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %s: %v", ip, err))})
			}
			continue
		}
		ip, err := s.freeAddress(ctx, t, svc, family)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP: %w", err))
		}
		spec.ClusterIPs = append(spec.ClusterIPs[:i:i], ip)
	}
	if len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	return nil
}
