package resourceclaim

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	claimhelper "k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Controller makes and releases ResourceClaims.
var Controller = controller.Starter{Name: "resourceclaim-controller", Account: "resource-claim-controller", EventSource: "resource_claim", Run: run}

// Indexes: pods by the claim or template they use ("namespace/name"), and claims by the UID of the
// pod they were made for.
const (
	byClaim    = "resource-claim-name"
	byTemplate = "resource-claim-template"
	byPod      = "resource-claim-owner"
)

type claims struct {
	env       controller.Env
	pods      client.ViewOf[*corev1.Pod]
	claims    client.ViewOf[*resourcev1.ResourceClaim]
	templates client.ViewOf[*resourcev1.ResourceClaimTemplate]
}

func run(ctx context.Context, env controller.Env) error {
	c := &claims{env: env}
	var err error
	if c.pods, err = client.Open[*corev1.Pod](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	if c.claims, err = client.Open[*resourcev1.ResourceClaim](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open resource claims: %w", err)
	}
	if c.templates, err = client.Open[*resourcev1.ResourceClaimTemplate](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open resource claim templates: %w", err)
	}
	c.pods.AddIndex(byClaim, claimsOf)
	c.pods.AddIndex(byTemplate, templatesOf)
	c.claims.AddIndex(byPod, func(rc *resourcev1.ResourceClaim) []string {
		if _, uid, ok := owningPod(rc); ok {
			return []string{string(uid)}
		}
		return nil
	})
	loops := []controller.Loop{
		{Name: "resource-claim-controller", Workers: 10, Reconcile: c.reconcilePod, Inputs: []controller.Input{
			controller.On(c.pods, podsToServe),
			controller.On(c.claims, func(e client.TypedEvent[*resourcev1.ResourceClaim]) []controller.Key { return c.users(e.Object) }),
			controller.On(c.templates, func(e client.TypedEvent[*resourcev1.ResourceClaimTemplate]) []controller.Key {
				return keysOf(c.pods.ByIndex(byTemplate, controller.KeyOf(e.Object).String()))
			}),
		}},
		{Name: "resource-claim-release", Workers: 10, Reconcile: c.reconcileClaim, Inputs: []controller.Input{
			controller.Self(c.claims),
			controller.On(c.pods, c.claimsToRelease),
		}},
	}
	errs := make([]error, len(loops))
	var group sync.WaitGroup
	for i := range loops {
		loops[i].Clock, loops[i].Log, loops[i].Queues = env.Clock, env.Log, env.Queues
		group.Go(func() { errs[i] = loops[i].Run(ctx) })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// podsToServe returns the pod if it has claims and has not ended.
func podsToServe(e client.TypedEvent[*corev1.Pod]) []controller.Key {
	p := e.Object
	if e.Type == client.Deleted || len(p.Spec.ResourceClaims) == 0 || p.DeletionTimestamp != nil || done(p) {
		return nil
	}
	return []controller.Key{controller.KeyOf(p)}
}

// users returns the pods that a claim's change may concern: those that name it, and the pod it was
// made for.
func (c *claims) users(rc *resourcev1.ResourceClaim) []controller.Key {
	keys := keysOf(c.pods.ByIndex(byClaim, controller.KeyOf(rc).String()))
	if name, _, ok := owningPod(rc); ok {
		keys = append(keys, controller.Key{Namespace: rc.Namespace, Name: name})
	}
	return keys
}

// claimsToRelease returns the claims of a pod that has ended or is gone.
func (c *claims) claimsToRelease(e client.TypedEvent[*corev1.Pod]) []controller.Key {
	p := e.Object
	if e.Type != client.Deleted && !done(p) {
		return nil
	}
	if len(p.Spec.ResourceClaims) == 0 && p.Status.ExtendedResourceClaimStatus == nil {
		return nil
	}
	keys := keysOf(c.claims.ByIndex(byPod, string(p.UID)))
	for i := range p.Spec.ResourceClaims {
		if name, _, err := claimhelper.Name(p, &p.Spec.ResourceClaims[i]); err == nil && name != nil {
			keys = append(keys, controller.Key{Namespace: p.Namespace, Name: *name})
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		keys = append(keys, controller.Key{Namespace: p.Namespace, Name: s.ResourceClaimName})
	}
	return keys
}

func keysOf[T client.Object](list []T) []controller.Key {
	keys := make([]controller.Key, 0, len(list))
	for _, obj := range list {
		keys = append(keys, controller.KeyOf(obj))
	}
	return keys
}

func claimsOf(p *corev1.Pod) []string {
	var names []string
	for i := range p.Spec.ResourceClaims {
		if name, _, err := claimhelper.Name(p, &p.Spec.ResourceClaims[i]); err == nil && name != nil {
			names = append(names, p.Namespace+"/"+*name)
		}
	}
	return names
}

func templatesOf(p *corev1.Pod) []string {
	var names []string
	for i := range p.Spec.ResourceClaims {
		if t := p.Spec.ResourceClaims[i].ResourceClaimTemplateName; t != nil {
			names = append(names, p.Namespace+"/"+*t)
		}
	}
	return names
}

// owningPod returns the pod that the claim was made for.
func owningPod(rc *resourcev1.ResourceClaim) (name string, uid types.UID, ok bool) {
	ref := metav1.GetControllerOfNoCopy(rc)
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" {
		return "", "", false
	}
	return ref.Name, ref.UID, true
}

// done reports whether the pod has ended or will never start.
func done(p *corev1.Pod) bool {
	return controller.PodEnded(p) || p.DeletionTimestamp != nil && p.Spec.NodeName == ""
}
