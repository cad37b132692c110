package accounts

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// ServiceAccount keeps a service account "default" in every active namespace.
var ServiceAccount = controller.Starter{Name: "serviceaccount-controller", Account: "service-account-controller", Run: runServiceAccount}

const defaultAccount = "default"

func runServiceAccount(ctx context.Context, env controller.Env) error {
	namespaces, err := client.Open[*corev1.Namespace](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open namespaces: %w", err)
	}
	accounts, err := client.Open[*corev1.ServiceAccount](ctx, env.Client, client.Scope{FieldSelector: "metadata.name=" + defaultAccount})
	if err != nil {
		return fmt.Errorf("open service accounts: %w", err)
	}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "serviceaccount-controller",
		Inputs: []controller.Input{
			perNamespace(namespaces),
			{View: accounts.View, Keys: ifDeleted},
		},
		Workers: 2,
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			ns, ok := namespaces.Get("", key.Name)
			if !ok || ns.Status.Phase == corev1.NamespaceTerminating || ns.DeletionTimestamp != nil {
				return controller.Result{}, nil
			}
			if _, ok := accounts.Get(key.Name, defaultAccount); ok {
				return controller.Result{}, nil
			}
			_, err := client.Create(ctx, env.Client, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Name, Name: defaultAccount}})
			return controller.Result{}, ignoreRaces(err)
		},
	}
	return loop.Run(ctx)
}

// perNamespace queues a namespace's name for each of its events except its deletion.
func perNamespace(namespaces client.ViewOf[*corev1.Namespace]) controller.Input {
	return controller.On(namespaces, func(e client.TypedEvent[*corev1.Namespace]) []controller.Key {
		if e.Type == client.Deleted {
			return nil
		}
		return []controller.Key{{Name: e.Object.Name}}
	})
}

// ifDeleted queues the namespace of a deleted object.
func ifDeleted(e client.Event) []controller.Key {
	if e.Type != client.Deleted {
		return nil
	}
	return []controller.Key{{Name: controller.KeyOf(e.Object).Namespace}}
}

// ignoreRaces drops errors of creations that lost a race: the object exists, or its namespace is
// being deleted.
func ignoreRaces(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || controller.NamespaceTerminating(err) {
		return nil
	}
	return err
}
