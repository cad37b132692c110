package architecture

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Controller compares the declared architecture with the cluster.
var Controller = controller.Starter{Name: name, Run: func(ctx context.Context, env controller.Env) error {
	return persist(ctx, env, name, func() error { return (&architect{env: env, changed: make(chan struct{}, 1)}).run(ctx) })
}}

const name = "architecture-controller"

// persist runs a controller of the package until ctx ends, if the configuration wants it. A start
// that fails, such as while the store does not answer, is repeated.
func persist(ctx context.Context, env controller.Env, name string, run func() error) error {
	for wait := 100 * time.Millisecond; env.Config.Architecture; wait = min(2*wait, 10*time.Second) {
		err := run()
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if apierrors.IsForbidden(err) { // another vendor's API server has no role for it
			env.Logger().Warn("components and systems are not compared with the cluster", "controller", name, "error", err)
			break
		}
		env.Logger().Warn("a controller starts again", "controller", name, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	<-ctx.Done()
	return nil
}

// architect is the controller's state.
type architect struct {
	env         controller.Env
	components  client.View
	systems     client.View
	traffics    client.View
	pods        client.ViewOf[*corev1.Pod]
	services    client.ViewOf[*corev1.Service]
	deployments client.ViewOf[*appsv1.Deployment]
	stateful    client.ViewOf[*appsv1.StatefulSet]
	daemons     client.ViewOf[*appsv1.DaemonSet]
	sets        client.ViewOf[*appsv1.ReplicaSet]
	jobs        client.ViewOf[*batchv1.Job]
	cronJobs    client.ViewOf[*batchv1.CronJob]
	policies    client.ViewOf[*networkingv1.NetworkPolicy]
	slices      client.ViewOf[*discoveryv1.EndpointSlice]
	roles       client.ViewOf[*rbacv1.Role]
	bindings    client.ViewOf[*rbacv1.RoleBinding]
	clusterRole client.ViewOf[*rbacv1.ClusterRole]
	clusterWide client.ViewOf[*rbacv1.ClusterRoleBinding]

	// changed wakes the source that queues everything.
	changed chan struct{}
	reader  architecture.Reader

	mu      sync.Mutex // guards the fields below
	model   *architecture.Model
	flows   []architecture.Flow
	stale   bool // model does not show the newest declarations
	unread  bool // flows do not show the newest traffic
	watched bool // a node reports traffic
}

// everything is the key that stands for all Components and Systems.
var everything = controller.Key{}

func (a *architect) run(ctx context.Context) (err error) {
	if err := define(ctx, a.env.Client); err != nil {
		return err
	}
	if a.components, err = open(ctx, a.env.Client, architecture.Components); err != nil || a.components == nil {
		return err
	}
	if a.systems, err = open(ctx, a.env.Client, architecture.Systems); err != nil || a.systems == nil {
		return err
	}
	if a.awaitNeed(ctx); ctx.Err() != nil {
		return nil
	}
	if a.traffics, err = open(ctx, a.env.Client, architecture.Traffics); err != nil || a.traffics == nil {
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	a.stale, a.unread = true, true
	loop := controller.Loop{
		Name: name, Clock: a.env.Clock, Log: a.env.Log, Queues: a.env.Queues, Reconcile: a.reconcile,
		Inputs:  a.inputs(),
		Sources: []func(context.Context, func(controller.Key, time.Duration)){a.spread},
	}
	return loop.Run(ctx)
}

// awaitNeed returns once a Component or a System exists. Most clusters have none, and need no
// other View.
func (a *architect) awaitNeed(ctx context.Context) {
	sub, cancel := context.WithCancel(ctx)
	found := make(chan struct{}, 1)
	var ended []<-chan struct{}
	for _, view := range []client.View{a.components, a.systems} {
		_, done := view.Subscribe(sub, func(e client.Event) {
			if e.Type != client.Deleted {
				select {
				case found <- struct{}{}:
				default:
				}
			}
		})
		ended = append(ended, done)
	}
	select {
	case <-found:
	case <-ctx.Done():
	}
	cancel()
	for _, done := range ended {
		<-done
	}
}

func (a *architect) open(ctx context.Context) (err error) {
	if a.slices, err = client.Open[*discoveryv1.EndpointSlice](ctx, a.env.Client, client.Scope{Namespace: metav1.NamespaceDefault}); err != nil {
		return fmt.Errorf("open endpoint slices: %w", err)
	}
	return firstError(
		openView(ctx, a.env.Client, &a.pods), openView(ctx, a.env.Client, &a.services), openView(ctx, a.env.Client, &a.deployments),
		openView(ctx, a.env.Client, &a.stateful), openView(ctx, a.env.Client, &a.daemons), openView(ctx, a.env.Client, &a.sets),
		openView(ctx, a.env.Client, &a.jobs), openView(ctx, a.env.Client, &a.cronJobs), openView(ctx, a.env.Client, &a.policies),
		openView(ctx, a.env.Client, &a.roles), openView(ctx, a.env.Client, &a.bindings),
		openView(ctx, a.env.Client, &a.clusterRole), openView(ctx, a.env.Client, &a.clusterWide),
	)
}

func openView[T client.Object](ctx context.Context, c client.Interface, view *client.ViewOf[T]) (err error) {
	if *view, err = client.Open[T](ctx, c, client.Scope{}); err != nil {
		var zero T
		return fmt.Errorf("open the view of %T: %w", zero, err)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// current returns the model of the newest declarations.
func (a *architect) current() *architecture.Model {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.model != nil && !a.stale {
		return a.model
	}
	a.stale = false
	var err error
	if a.model, err = a.reader.Model(a.components.List("", nil), a.systems.List("", nil)); err != nil {
		a.env.Logger().Error("cannot read declarations; they are ignored", "controller", name, "error", err)
	}
	return a.model
}

// reconcile judges one Component, or one System, whose key has no namespace.
func (a *architect) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	switch {
	case key == everything:
		select {
		case a.changed <- struct{}{}:
		default:
		}
		return controller.Result{}, nil
	case key.Namespace == "":
		return controller.Result{}, a.judgeSystem(ctx, key.Name)
	}
	return a.judgeComponent(ctx, architecture.ComponentReference{Namespace: key.Namespace, Name: key.Name})
}
