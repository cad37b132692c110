package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/rbac"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Account keeps the service account of nodes' parts. It also ends the right of all nodes to read
// all pods, which clusters of earlier versions have, once each node has the version that does not
// need it.
var Account = controller.Starter{Name: "node-account-controller", Run: func(ctx context.Context, env controller.Env) error {
	a := accounter{env: env}
	err := a.run(ctx)
	if apierrors.IsForbidden(err) { // another vendor's API server has no role for it
		<-ctx.Done()
		return nil
	}
	return err
}}

type accounter struct {
	env      controller.Env
	accounts client.ViewOf[*corev1.ServiceAccount]
	nodes    client.ViewOf[*corev1.Node]
	retired  client.ViewOf[*rbacv1.ClusterRoleBinding]
}

func (a *accounter) run(ctx context.Context) (err error) {
	named := func(namespace, name string) client.Scope {
		return client.Scope{Namespace: namespace, FieldSelector: "metadata.name=" + name}
	}
	if a.accounts, err = client.Open[*corev1.ServiceAccount](ctx, a.env.Client, named(metav1.NamespaceSystem, auth.NodeAccount)); err != nil {
		return fmt.Errorf("open service account %s: %w", auth.NodeAccount, err)
	}
	if a.nodes, err = client.Open[*corev1.Node](ctx, a.env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open nodes: %w", err)
	}
	if a.retired, err = client.Open[*rbacv1.ClusterRoleBinding](ctx, a.env.Client, named("", rbac.RetiredNodeRole)); err != nil {
		return fmt.Errorf("open the retired binding: %w", err)
	}
	all := []controller.Key{{Name: auth.NodeAccount}}
	loop := controller.Loop{
		Name: "node-account-controller", Clock: a.env.Clock, Log: a.env.Log, Queues: a.env.Queues, Reconcile: a.reconcile,
		Inputs: []controller.Input{
			controller.On(a.accounts, func(client.TypedEvent[*corev1.ServiceAccount]) []controller.Key { return all }),
			controller.On(a.retired, func(client.TypedEvent[*rbacv1.ClusterRoleBinding]) []controller.Key { return all }),
			controller.On(a.nodes, func(e client.TypedEvent[*corev1.Node]) []controller.Key {
				if e.Type == client.Modified && needsRetired(e.Old) == needsRetired(e.Object) {
					return nil
				}
				return all
			}),
		},
		Sources: []func(context.Context, func(controller.Key, time.Duration)){func(_ context.Context, add func(controller.Key, time.Duration)) { add(all[0], 0) }},
	}
	return loop.Run(ctx)
}

// needsRetired reports whether a node is a joined one of an earlier version.
func needsRetired(n *corev1.Node) bool {
	return n.Annotations[auth.NodeKeysAnnotation] != "" && n.Annotations[auth.NodeAccountAnnotation] == ""
}

func (a *accounter) reconcile(ctx context.Context, _ controller.Key) (controller.Result, error) {
	if _, ok := a.accounts.Get(metav1.NamespaceSystem, auth.NodeAccount); !ok {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: auth.NodeAccount}}
		if _, err := client.Create(ctx, a.env.Client, account); err != nil && !apierrors.IsAlreadyExists(err) {
			return controller.Result{}, fmt.Errorf("create service account %s: %w", auth.NodeAccount, err)
		}
	}
	if _, ok := a.retired.Get("", rbac.RetiredNodeRole); !ok {
		return controller.Result{}, nil
	}
	for _, n := range a.nodes.List("", nil) {
		if needsRetired(n) {
			return controller.Result{}, nil
		}
	}
	// The cluster-wide binding goes last, because the loop follows it.
	for _, remove := range []func() error{
		func() error { return drop[*rbacv1.RoleBinding](ctx, a.env.Client, metav1.NamespaceSystem) },
		func() error { return drop[*rbacv1.Role](ctx, a.env.Client, metav1.NamespaceSystem) },
		func() error { return drop[*rbacv1.ClusterRole](ctx, a.env.Client, "") },
		func() error { return drop[*rbacv1.ClusterRoleBinding](ctx, a.env.Client, "") },
	} {
		if err := remove(); err != nil {
			return controller.Result{}, fmt.Errorf("end the right of nodes to read all pods: %w", err)
		}
	}
	a.env.Logger().Info("nodes can read only their own pods from now on", "removed", rbac.RetiredNodeRole)
	return controller.Result{}, nil
}

func drop[T client.Object](ctx context.Context, c client.Interface, namespace string) error {
	err := client.Delete[T](ctx, c, namespace, rbac.RetiredNodeRole, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
