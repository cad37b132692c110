package ui

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// tier is a Deployment that calls the Service of the next tier, if there is one.
func tier(name, next string) *appsv1.Deployment {
	d := deployment(name, 2)
	d.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
	if next != "" {
		d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NEXT", Value: "http://" + next + ":80"}}
	}
	return d
}

func createNamespace(t *testing.T, k kubernetes.Interface, name string) {
	t.Helper()
	if _, err := k.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// createIn creates Deployments with a Service of the same name each.
func createIn(t *testing.T, k kubernetes.Interface, namespace string, all ...*appsv1.Deployment) {
	t.Helper()
	for _, d := range all {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: d.Name}, Spec: corev1.ServiceSpec{Selector: d.Spec.Selector.MatchLabels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}}}
		if _, err := k.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// createPod creates a pod with the label app of its name.
func createPod(t *testing.T, k kubernetes.Interface, namespace, name string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/" + name + ":1"}}}}
	if _, err := k.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// choose picks an option of a list of the header.
func (b *browser) choose(id, value string) {
	b.t.Helper()
	eval[any](b, fmt.Sprintf(`{ const s = document.getElementById(%s); s.value = %s; s.dispatchEvent(new Event('change')); }`, quote(id), quote(value)))
}
