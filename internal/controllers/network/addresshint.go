package network

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/loadbalancer"
)

// LoadBalancerHint and IngressHint explain pending addresses that add-ons give: to Ingresses, and
// to Services of another load balancer class. An object without an address gets an event that names
// the missing add-on and the way to go on.
var (
	LoadBalancerHint = loadBalancerHint(hintGrace)
	IngressHint      = ingressHint(hintGrace)
)

const (
	hintReason = "AddressPending"
	// hintGrace is the time an add-on has before the first event.
	hintGrace = 10 * time.Second
	// hintRepeat keeps an event on a pending object: events expire after an hour by default.
	hintRepeat = 30 * time.Minute
)

func loadBalancerHint(grace time.Duration) controller.Starter {
	return controller.Starter{Name: "load-balancer-hint-controller", Run: func(ctx context.Context, env controller.Env) error {
		services, err := client.Open[*corev1.Service](ctx, env.Client, client.Scope{})
		if err != nil {
			return ifAllowed(ctx, err)
		}
		off := slices.Contains(env.Config.LoadBalancerPool, config.PoolNone)
		return hint(ctx, env, "load-balancer-hint-controller", grace, services, func(s *corev1.Service) string {
			return whyNoLoadBalancer(s, off)
		})
	}}
}

func ingressHint(grace time.Duration) controller.Starter {
	return controller.Starter{Name: "ingress-hint-controller", Run: func(ctx context.Context, env controller.Env) error {
		ingresses, err := client.Open[*networkingv1.Ingress](ctx, env.Client, client.Scope{})
		if err != nil {
			return ifAllowed(ctx, err)
		}
		classes, err := client.Open[*networkingv1.IngressClass](ctx, env.Client, client.Scope{})
		if err != nil {
			return ifAllowed(ctx, err)
		}
		return hint(ctx, env, "ingress-hint-controller", grace, ingresses, func(i *networkingv1.Ingress) string {
			return whyNoIngress(i, classes.Get)
		})
	}}
}

// ifAllowed idles on an API server of another vendor, which has no role for a hint controller.
func ifAllowed(ctx context.Context, err error) error {
	if apierrors.IsForbidden(err) {
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("open a view for hints: %w", err)
}

func hint[T client.Object](ctx context.Context, env controller.Env, name string, grace time.Duration, view client.ViewOf[T], why func(T) string) error {
	h := &hints[T]{grace: grace, due: map[controller.Key]time.Time{}, view: view, why: why, events: env.Events}
	loop := controller.Loop{Name: name, Queues: env.Queues, Inputs: []controller.Input{controller.Self(view)}, Reconcile: h.reconcile}
	return loop.Run(ctx)
}

// hints is one loop's state. Its only worker owns it.
type hints[T client.Object] struct {
	grace time.Duration
	// due is the time of a pending object's next event.
	due  map[controller.Key]time.Time
	view client.ViewOf[T]
	// why returns the reason why an object has no address; "" if it needs none.
	why    func(T) string
	events client.Recorder
}

func (h *hints[T]) reconcile(_ context.Context, key controller.Key) (controller.Result, error) {
	obj, ok := h.view.Get(key.Namespace, key.Name)
	note := ""
	if ok {
		note = h.why(obj)
	}
	if note == "" {
		delete(h.due, key)
		return controller.Result{}, nil
	}
	now := time.Now()
	due, known := h.due[key]
	if !known {
		due = now.Add(h.grace)
	}
	if !due.After(now) {
		h.events.Eventf(obj, nil, corev1.EventTypeWarning, hintReason, "AssignAddress", "%s", note)
		due = now.Add(hintRepeat)
	}
	h.due[key] = due
	return controller.Result{After: due.Sub(now)}, nil
}

// whyNoLoadBalancer explains why a Service of type LoadBalancer that an add-on serves has no
// address: it has another class, or off says that all Services are left to add-ons. The load
// balancer controller explains all others.
func whyNoLoadBalancer(s *corev1.Service, off bool) string {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) > 0 || s.DeletionTimestamp != nil {
		return ""
	}
	note := "No controller has given this Service an address: --load-balancer-pool is none, so an add-on has to. " +
		"Install one, such as MetalLB."
	switch class := s.Spec.LoadBalancerClass; {
	case class != nil && *class != loadbalancer.Class:
		note = fmt.Sprintf("No controller of load balancer class %q has given this Service an address. "+
			"Check that it runs.", *class)
	case !off:
		return ""
	}
	var ports []string
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			ports = append(ports, fmt.Sprintf("%d/%s at %d", p.Port, p.Protocol, p.NodePort))
		}
	}
	if len(ports) > 0 {
		note += " Meanwhile its node ports answer on every node: " + strings.Join(ports, ", ") + "."
	}
	return note
}

// whyNoIngress explains why an Ingress has no address.
func whyNoIngress(i *networkingv1.Ingress, class func(namespace, name string) (*networkingv1.IngressClass, bool)) string {
	if len(i.Status.LoadBalancer.Ingress) > 0 || i.DeletionTimestamp != nil {
		return ""
	}
	name := i.Annotations["kubernetes.io/ingress.class"]
	if i.Spec.IngressClassName != nil {
		name = *i.Spec.IngressClassName
	}
	if name == "" {
		return "No controller serves this Ingress: spec.ingressClassName is not set, and no IngressClass is the default. " +
			"Install an ingress controller, such as Traefik, and name its class."
	}
	c, ok := class("", name)
	if !ok {
		return fmt.Sprintf("No controller serves this Ingress: IngressClass %q does not exist. "+
			"Install the ingress controller that owns it.", name)
	}
	return fmt.Sprintf("The controller %q of IngressClass %q has not reported an address for this Ingress. "+
		"Check that it runs.", c.Spec.Controller, name)
}
