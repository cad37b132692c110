// Package network maintains the ranges of Service addresses, and explains pending addresses of
// Services and Ingresses in Events.
package network

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// ServiceCIDR marks each range as ready. It delays the deletion of a range while a Service uses an
// address that no other range covers.
var ServiceCIDR = controller.Starter{Name: "service-cidr-controller", Account: "service-cidrs-controller", Run: run}

const finalizer = "networking.k8s.io/service-cidr-finalizer"

type serviceCIDRs struct {
	env       controller.Env
	cidrs     client.ViewOf[*networkingv1.ServiceCIDR]
	addresses client.ViewOf[*networkingv1.IPAddress]
}

func run(ctx context.Context, env controller.Env) error {
	cidrs, err := client.Open[*networkingv1.ServiceCIDR](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open service CIDRs: %w", err)
	}
	addresses, err := client.Open[*networkingv1.IPAddress](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open IP addresses: %w", err)
	}
	c := serviceCIDRs{env: env, cidrs: cidrs, addresses: addresses}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "service-cidr-controller",
		Inputs: []controller.Input{
			controller.On(cidrs, func(e client.TypedEvent[*networkingv1.ServiceCIDR]) []controller.Key {
				keys := []controller.Key{{Name: e.Object.Name}}
				// A new range may allow the deletion of an old one.
				for _, other := range cidrs.List("", nil) {
					if other.DeletionTimestamp != nil && other.Name != e.Object.Name {
						keys = append(keys, controller.KeyOf(other))
					}
				}
				return keys
			}),
			controller.On(addresses, func(e client.TypedEvent[*networkingv1.IPAddress]) []controller.Key {
				if e.Type != client.Deleted {
					return nil
				}
				var keys []controller.Key
				for _, s := range cidrs.List("", nil) {
					if s.DeletionTimestamp != nil {
						keys = append(keys, controller.KeyOf(s))
					}
				}
				return keys
			}),
		},
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

func (c serviceCIDRs) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	s, ok := c.cidrs.Get("", key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	err := c.keep(ctx, s)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return controller.Result{}, err
}

func (c serviceCIDRs) keep(ctx context.Context, s *networkingv1.ServiceCIDR) error {
	if s.DeletionTimestamp != nil {
		if !slices.Contains(s.Finalizers, finalizer) {
			return nil
		}
		if c.needed(s) {
			return c.setReady(ctx, s, metav1.Condition{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating,
				Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"})
		}
		return c.setFinalizers(ctx, s, slices.DeleteFunc(slices.Clone(s.Finalizers), func(f string) bool { return f == finalizer }))
	}
	if !slices.Contains(s.Finalizers, finalizer) {
		if err := c.setFinalizers(ctx, s, append(slices.Clone(s.Finalizers), finalizer)); err != nil {
			return err
		}
	}
	return c.setReady(ctx, s, metav1.Condition{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is ready"})
}

// needed reports whether an address is in this range and in no other remaining range.
func (c serviceCIDRs) needed(s *networkingv1.ServiceCIDR) bool {
	var others []netip.Prefix
	for _, o := range c.cidrs.List("", nil) {
		if o.Name != s.Name && o.DeletionTimestamp == nil {
			others = append(others, prefixes(o)...)
		}
	}
	mine := prefixes(s)
	covers := func(list []netip.Prefix, ip netip.Addr) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(ip) })
	}
	return slices.ContainsFunc(c.addresses.List("", nil), func(a *networkingv1.IPAddress) bool {
		ip, err := netip.ParseAddr(a.Name)
		return err == nil && covers(mine, ip) && !covers(others, ip)
	})
}

func prefixes(s *networkingv1.ServiceCIDR) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range s.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func (c serviceCIDRs) setReady(ctx context.Context, s *networkingv1.ServiceCIDR, condition metav1.Condition) error {
	if fresh, ok := c.cidrs.Get("", s.Name); ok {
		s = fresh
	}
	s = s.DeepCopy()
	if !apimeta.SetStatusCondition(&s.Status.Conditions, condition) {
		return nil
	}
	_, err := client.UpdateStatus(ctx, c.env.Client, s)
	return err
}

func (c serviceCIDRs) setFinalizers(ctx context.Context, s *networkingv1.ServiceCIDR, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": s.ResourceVersion, "finalizers": finalizers}})
	if err != nil {
		return err
	}
	_, err = client.Patch[*networkingv1.ServiceCIDR](ctx, c.env.Client, "", s.Name, types.MergePatchType, patch)
	return err
}
