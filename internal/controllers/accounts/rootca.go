package accounts

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/insight/because"
)

// RootCA publishes the cluster's CA in the ConfigMap kube-root-ca.crt of every namespace.
var RootCA = controller.Starter{Name: "root-ca-certificate-publisher-controller", Account: "root-ca-cert-publisher", Run: runRootCA}

const (
	rootCAName        = "kube-root-ca.crt"
	rootCADescription = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

func runRootCA(ctx context.Context, env controller.Env) error {
	namespaces, err := client.Open[*corev1.Namespace](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open namespaces: %w", err)
	}
	configMaps, err := client.Open[*corev1.ConfigMap](ctx, env.Client, client.Scope{FieldSelector: "metadata.name=" + rootCAName})
	if err != nil {
		return fmt.Errorf("open config maps: %w", err)
	}
	annotations := map[string]string{"kubernetes.io/description": rootCADescription}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:    "root-ca-certificate-publisher-controller",
		Sources: []func(context.Context, func(controller.Key, time.Duration)){controller.OnAuthority(env, perNamespace(namespaces))},
		Inputs: []controller.Input{
			perNamespace(namespaces),
			{View: configMaps.View, Keys: func(e client.Event) []controller.Key {
				return []controller.Key{{Name: controller.KeyOf(e.Object).Namespace}}
			}},
		},
		Workers: 2,
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			ns, ok := namespaces.Get("", key.Name)
			if !ok || ns.Status.Phase == corev1.NamespaceTerminating || ns.DeletionTimestamp != nil {
				return controller.Result{}, nil
			}
			data := map[string]string{"ca.crt": string(env.Config.Authority().CACert)}
			cm, ok := configMaps.Get(key.Name, rootCAName)
			if !ok {
				// The namespace is the cause, also if the key came from the authority.
				_, err := client.Create(because.WithObjects(ctx, ns), env.Client, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: key.Name, Name: rootCAName, Annotations: maps.Clone(annotations)}, Data: data})
				return controller.Result{}, ignoreRaces(err)
			}
			if maps.Equal(cm.Data, data) && cm.Annotations["kubernetes.io/description"] == rootCADescription {
				return controller.Result{}, nil
			}
			cm = cm.DeepCopy()
			cm.Data = data
			if cm.Annotations == nil {
				cm.Annotations = map[string]string{}
			}
			maps.Copy(cm.Annotations, annotations)
			_, err := client.Update(ctx, env.Client, cm)
			return controller.Result{}, ignoreRaces(err)
		},
	}
	return loop.Run(ctx)
}
