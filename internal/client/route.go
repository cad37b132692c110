package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Routes finds endpoints of Services, for the API server's own calls to webhooks and aggregated
// servers. It reads Views and returns an endpoint's address, so it needs neither the proxy's rules
// nor DNS.
type Routes struct {
	services *Lazy[*corev1.Service]
	slices   *Lazy[*discoveryv1.EndpointSlice]
}

const sliceByService = "service"

// NewRoutes makes Routes that read Services and EndpointSlices through c until ctx ends. The first
// call opens the Views.
func NewRoutes(ctx context.Context, c Interface) *Routes {
	return &Routes{
		services: NewLazy[*corev1.Service](ctx, c, nil),
		slices: NewLazy(ctx, c, func(v ViewOf[*discoveryv1.EndpointSlice]) {
			v.AddIndex(sliceByService, func(s *discoveryv1.EndpointSlice) []string {
				return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
			})
		}),
	}
}

// Resolve returns HOST:PORT of a random ready endpoint behind a port of the Service.
func (r *Routes) Resolve(ctx context.Context, namespace, name string, port int32) (string, error) {
	service, err := r.services.Find(ctx, namespace, name)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return "", fmt.Errorf("service %q not found", name)
		}
		return "", err
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(port))), nil
	}
	portName, ok := PortName(service, port)
	if !ok {
		return "", fmt.Errorf("no service port %d found for service %q", port, name)
	}
	slices, err := r.slices.View()
	if err != nil {
		return "", err
	}
	ready := ReadyAddresses(slices.ByIndex(sliceByService, namespace+"/"+name), portName)
	if len(ready) == 0 {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	return ready[rand.IntN(len(ready))], nil
}

// PortName returns the name of the Service's port with this number.
func PortName(service *corev1.Service, port int32) (name string, ok bool) {
	for i := range service.Spec.Ports {
		if service.Spec.Ports[i].Port == port {
			return service.Spec.Ports[i].Name, true
		}
	}
	return "", false
}

// ReadyAddresses returns HOST:PORT of the ready endpoints behind a named port. slices are those of
// one Service.
func ReadyAddresses(slices []*discoveryv1.EndpointSlice, portName string) (out []string) {
	for _, slice := range slices {
		for _, p := range slice.Ports {
			name := ""
			if p.Name != nil {
				name = *p.Name
			}
			if p.Port == nil || name != portName {
				continue
			}
			for _, e := range slice.Endpoints {
				if (e.Conditions.Ready == nil || *e.Conditions.Ready) && len(e.Addresses) > 0 {
					out = append(out, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
				}
			}
		}
	}
	return out
}
