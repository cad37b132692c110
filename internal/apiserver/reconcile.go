package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/client"
)

// reconcileEvery is the interval of checks of the Service "kubernetes" and its endpoints, as
// upstream.
const reconcileEvery = 10 * time.Second

// keepKubernetesService restores the objects that lead to this server when they are changed or
// deleted.
func (s *Server) keepKubernetesService(ctx context.Context) {
	if at := s.cfg.Advertise.Addr(); at.IsValid() && !isEndpoint(at) && !s.cfg.ExternalEndpoints {
		s.log.Warn("the Service kubernetes leads nowhere: pods can not reach this server at the address that it is advertised at", "address", at)
	}
	for {
		again := reconcileEvery
		if err := s.reconcileKubernetes(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("keep the Service kubernetes", "err", err)
		}
		if !s.trustPublished.reached() || !s.tokensTracked.reached() || !s.endpointsKept.reached() {
			again = time.Second // the server is not ready without them
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

func (s *Server) reconcileKubernetes(ctx context.Context) error {
	if err := s.bootstrap(ctx, s.bootstrapObjects()); err != nil {
		return err
	}
	return errors.Join(
		s.widenServiceCIDR(ctx),
		s.trustPublished.complete(s.publishTrust(ctx)),
		s.tokensTracked.complete(s.trackTokens(ctx)),
		s.endpointsKept.complete(s.keepEndpoints(ctx)))
}

// widenServiceCIDR adds the second family to the default ranges if the cluster has gained one. All
// other changes are left to administrators, because Services have addresses of the existing ranges.
func (s *Server) widenServiceCIDR(ctx context.Context) error {
	if len(s.cfg.ServiceCIDRs) < 2 {
		return nil
	}
	return s.createOrUpdate(ctx, s.defaultServiceCIDR(), func(obj, want runtime.Object) {
		cidr, wanted := obj.(*networkingv1.ServiceCIDR), want.(*networkingv1.ServiceCIDR)
		if len(cidr.Spec.CIDRs) == 1 && cidr.Spec.CIDRs[0] == wanted.Spec.CIDRs[0] && cidr.DeletionTimestamp == nil {
			cidr.Spec.CIDRs = wanted.Spec.CIDRs
		}
	})
}

// keepEndpoints keeps the endpoints of the Service "kubernetes".
func (s *Server) keepEndpoints(ctx context.Context) error {
	if s.cfg.ExternalEndpoints || !isEndpoint(s.cfg.Advertise.Addr()) || len(s.cfg.ServiceCIDRs) == 0 {
		return nil
	}
	if err := s.createOrUpdate(ctx, s.kubernetesEndpoints(), func(obj, want runtime.Object) {
		obj.(*corev1.Endpoints).Subsets = want.(*corev1.Endpoints).Subsets
	}); err != nil {
		return err
	}
	slice := s.kubernetesSlice()
	have, err := client.Get[*discoveryv1.EndpointSlice](ctx, s.ownClient(), slice.Namespace, slice.Name)
	if err == nil && have.AddressType != slice.AddressType { // which cannot be updated
		err = client.Delete[*discoveryv1.EndpointSlice](ctx, s.ownClient(), slice.Namespace, slice.Name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return s.createOrUpdate(ctx, slice, func(obj, want runtime.Object) {
		slice, wanted := obj.(*discoveryv1.EndpointSlice), want.(*discoveryv1.EndpointSlice)
		slice.Endpoints, slice.Ports = wanted.Endpoints, wanted.Ports
	})
}

// isEndpoint reports whether the API accepts the address in endpoints. Other machines cannot reach
// a loopback or link-local address.
func isEndpoint(at netip.Addr) bool {
	return at.IsValid() && !at.IsLoopback() && !at.IsUnspecified() && !at.IsLinkLocalUnicast() && !at.IsLinkLocalMulticast()
}

// The ConfigMap with the date since which the use of tokens in Secrets is tracked
// (internal/auth/token tracks it).
const (
	trackingMapName = "kube-apiserver-legacy-service-account-token-tracking"
	trackingSince   = "since"
)

// trackTokens keeps that ConfigMap. The cleaner of unused tokens counts from its date at the
// earliest (KEP-2799), and does not begin without it.
func (s *Server) trackTokens(ctx context.Context) error {
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: trackingMapName},
		Data:       map[string]string{trackingSince: s.clock().UTC().Format(time.DateOnly)},
	}
	return s.createOrUpdate(ctx, want, func(obj, want runtime.Object) {
		m := obj.(*corev1.ConfigMap)
		if _, err := time.Parse(time.DateOnly, m.Data[trackingSince]); err != nil {
			if m.Data == nil {
				m.Data = map[string]string{}
			}
			m.Data[trackingSince] = want.(*corev1.ConfigMap).Data[trackingSince]
		}
	})
}

func (s *Server) kubernetesEndpoints() *corev1.Endpoints {
	at := s.cfg.Advertise
	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: at.Addr().String()}},
			Ports:     []corev1.EndpointPort{{Name: "https", Port: int32(at.Port()), Protocol: corev1.ProtocolTCP}},
		}},
	}
}

func (s *Server) kubernetesSlice() *discoveryv1.EndpointSlice {
	at, ready, name, port, protocol := s.cfg.Advertise, true, "https", int32(s.cfg.Advertise.Port()), corev1.ProtocolTCP
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{at.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	if at.Addr().Is6() {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	return slice
}

// createOrUpdate creates the object, or lets take copy the wanted state into the existing one.
func (s *Server) createOrUpdate(ctx context.Context, want runtime.Object, take func(obj, want runtime.Object)) error {
	e, ok := s.endpoints.Find(api.ResourceOf(want))
	if !ok {
		return fmt.Errorf("%T is not served", want)
	}
	meta := wire.Accessor(want)
	op := s.engine.InternalOperation(e, meta.GetNamespace(), meta.GetName())
	op.FieldManager = registry.ComponentManager(op.User.Name)
	e.ApplyDefaults(want)
	_, _, err := op.Update(ctx, true, func(_ context.Context, old runtime.Object) (runtime.Object, error) {
		if old == nil {
			return op.TrackFields(e.NewObject(), want.DeepCopyObject()), nil
		}
		obj := old.DeepCopyObject()
		take(obj, want)
		return op.TrackFields(old, obj), nil
	})
	if apierrors.IsConflict(err) {
		return nil // another server was faster
	}
	return err
}
