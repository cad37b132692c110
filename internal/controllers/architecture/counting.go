package architecture

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// countingLabel marks the Traffic objects that Counting made, and may delete. Others stay: an
// administrator who makes one lets the node count always.
const (
	countingLabel = "architecture.knarr.io/traffic"
	countingValue = "automatic"
)

const countingName = "traffic-controller"

// Counting lets all nodes count while a Component or a System exists: it creates a Traffic for
// each Node, and deletes them afterwards.
var Counting = controller.Starter{Name: countingName, Run: func(ctx context.Context, env controller.Env) error {
	return persist(ctx, env, countingName, func() error { return (&switcher{env: env}).run(ctx) })
}}

// switcher is the controller's state.
type switcher struct {
	env      controller.Env
	declared []client.View // of Components and Systems
	traffics client.View
	nodes    client.ViewOf[*corev1.Node]
}

func (c *switcher) run(ctx context.Context) error {
	var views []client.View
	for _, r := range []schema.GroupVersionResource{architecture.Components, architecture.Systems, architecture.Traffics} {
		view, err := c.open(ctx, r)
		if err != nil || view == nil {
			return err
		}
		views = append(views, view)
	}
	c.declared, c.traffics = views[:2], views[2]
	var err error
	if c.nodes, err = client.Open[*corev1.Node](ctx, c.env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open nodes: %w", err)
	}
	loop := controller.Loop{Name: countingName, Clock: c.env.Clock, Log: c.env.Log, Queues: c.env.Queues, Reconcile: c.reconcile}
	for _, view := range append(views, c.nodes.View) {
		loop.Inputs = append(loop.Inputs, controller.Input{View: view, Keys: func(e client.Event) []controller.Key {
			if e.Type == client.Modified {
				return nil
			}
			return []controller.Key{{Name: "all"}}
		}})
	}
	return loop.Run(ctx)
}

// open returns the View of a kind once its definition is established, or nil when ctx ends.
func (c *switcher) open(ctx context.Context, r schema.GroupVersionResource) (client.View, error) {
	definitions, err := client.Open[*apiextensionsv1.CustomResourceDefinition](ctx, c.env.Client, client.Scope{FieldSelector: "metadata.name=" + r.GroupResource().String()})
	if err != nil {
		return nil, fmt.Errorf("open the definition of %s: %w", r.Resource, err)
	}
	sub, cancel := context.WithCancel(ctx)
	ready := make(chan struct{}, 1)
	_, done := definitions.Subscribe(sub, func(e client.TypedEvent[*apiextensionsv1.CustomResourceDefinition]) {
		for _, condition := range e.Object.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				select {
				case ready <- struct{}{}:
				default:
				}
			}
		}
	})
	defer func() { cancel(); <-done }()
	select {
	case <-ctx.Done():
		return nil, nil
	case <-ready:
	}
	view, err := c.env.Client.View(ctx, r, client.Scope{MetadataOnly: true})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", r.Resource, err)
	}
	return view, nil
}

// reconcile creates the missing Traffic objects, or deletes those that nothing wants.
func (c *switcher) reconcile(ctx context.Context, _ controller.Key) (controller.Result, error) {
	wanted := false
	for _, view := range c.declared {
		wanted = wanted || len(view.List("", nil)) > 0
	}
	var errs []error
	if wanted {
		for _, node := range c.nodes.List("", nil) {
			if _, exists := c.traffics.Get("", node.Name); !exists {
				errs = append(errs, c.create(ctx, node))
			}
		}
	}
	for _, o := range c.traffics.List("", nil) {
		m, ok := o.(metav1.Object)
		if !ok || m.GetLabels()[countingLabel] != countingValue {
			continue
		}
		if _, exists := c.nodes.Get("", m.GetName()); wanted && exists {
			continue
		}
		if err := c.env.Client.Delete(ctx, architecture.Traffics, "", m.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return controller.Result{}, errors.Join(errs...)
}

func (c *switcher) create(ctx context.Context, node *corev1.Node) error {
	t := architecture.Traffic{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: map[string]string{countingLabel: countingValue}}}
	u, err := t.Unstructured()
	if err != nil {
		return err
	}
	if _, err := c.env.Client.Create(ctx, architecture.Traffics, "", u, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}
