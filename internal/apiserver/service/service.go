package service

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
	"github.com/knarr-project/knarr/internal/apiserver/registry"
)

// The names of the objects for the configured Service ranges.
const (
	DefaultServiceCIDR    = "kubernetes"
	KubernetesServiceName = "kubernetes"
)

// PortRange is Size ports, from Base on.
type PortRange struct{ Base, Size int }

// Allocator gives Services their addresses and node ports.
type Allocator struct {
	Kinds   *registry.Kinds
	Metrics *allocationMetrics
	// CIDRs are the ranges of cluster IPs: one, or two of different families.
	CIDRs []netip.Prefix
	// Ports is the range of node ports.
	Ports PortRange
	// Owned records in a new object's managedFields that the API server has set its fields.
	Owned func(kind *registry.Endpoint, obj runtime.Object) runtime.Object
}

// Hooks allocate addresses and ports in the transaction that writes the Service. So no
// address is ever taken without a Service that has it, and nothing needs repair.
func (s *Allocator) Hooks() registry.Hooks {
	return registry.Hooks{
		Create: func(ctx context.Context, t *registry.Transaction, obj runtime.Object) error {
			return s.allocateService(ctx, t, obj.(*corev1.Service), nil)
		},
		Update: func(ctx context.Context, t *registry.Transaction, obj, old runtime.Object) error {
			return s.allocateService(ctx, t, obj.(*corev1.Service), old.(*corev1.Service))
		},
		Remove: func(ctx context.Context, t *registry.Transaction, old runtime.Object) error {
			gone := old.(*corev1.Service)
			t.Refresh = s.refresh
			s.releaseAddresses(t, clusterIPs(gone))
			return s.releaseNodePorts(ctx, t, nodePorts(gone))
		},
	}
}

// refresh waits until the cache of addresses has the changes that made a transaction fail.
func (s *Allocator) refresh(ctx context.Context, revision int64) {
	if r := s.Kinds.Registry("networking.k8s.io", "ipaddresses"); r != nil {
		r.WaitVisible(ctx, revision)
	}
}

// allocateService allocates the addresses and ports that the Service lacks, and releases those that
// it no longer needs.
func (s *Allocator) allocateService(ctx context.Context, t *registry.Transaction, svc, old *corev1.Service) error {
	var before []string
	var settled int
	var had string
	if old != nil {
		before, had = clusterIPs(old), old.Spec.ClusterIP
		if old.Spec.Type != corev1.ServiceTypeExternalName {
			settled = len(old.Spec.ClusterIPs)
		}
	}
	t.Refresh = s.refresh
	if svc.Spec.Type != corev1.ServiceTypeExternalName {
		if errs := s.resolveFamilies(svc, old); len(errs) > 0 {
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
func (s *Allocator) setClusterIPs(ctx context.Context, t *registry.Transaction, svc *corev1.Service, settled int, had string) error {
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
			if ip == had && s.holdsAddress(ctx, svc, ip) {
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
