// Package operator is a small operator with controller-runtime. Its tests show the use of
// knarrtest. The operator makes a Deployment for each Greeting. The Greeting's status holds the
// number of ready replicas.
package operator

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Kind is the custom resource.
var Kind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Greeting"}

// New is an empty Greeting.
func New() *unstructured.Unstructured {
	greeting := &unstructured.Unstructured{}
	greeting.SetGroupVersionKind(Kind)
	return greeting
}

// Reconciler keeps the Deployments of Greetings.
type Reconciler struct{ client.Client }

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).Named("greeting").For(New()).Owns(&appsv1.Deployment{}).Complete(r)
}

// Reconcile brings one Deployment to what its Greeting asks for.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	greeting := New()
	if err := r.Get(ctx, request.NamespacedName, greeting); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	name, _, _ := unstructured.NestedString(greeting.Object, "spec", "name")
	replicas, _, _ := unstructured.NestedInt64(greeting.Object, "spec", "replicas")
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		labels := map[string]string{"greeting": request.Name}
		wanted := int32(replicas)
		deployment.Spec.Replicas = &wanted
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{
			Name: "greeter", Image: "example.com/greeter:1", Args: []string{"hello, " + name},
		}}
		return controllerutil.SetControllerReference(greeting, deployment, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	ready := int64(deployment.Status.ReadyReplicas)
	if told, found, _ := unstructured.NestedInt64(greeting.Object, "status", "ready"); found && told == ready {
		return ctrl.Result{}, nil
	}
	if err := unstructured.SetNestedField(greeting.Object, ready, "status", "ready"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Update(ctx, greeting)
}
