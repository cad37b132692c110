package run

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/trace/tracetest"
)

// Two servers send their part of one trace.
func TestServersExportAChangeAsOneTrace(t *testing.T) {
	collector := tracetest.Listen(t)
	first := newConfig(t, "a")
	first.APIServer.Tracing = collector.Config(t, 1_000_000)
	a := startServer(t, first)
	second := a.joining(t, "b")
	second.APIServer.Tracing = first.APIServer.Tracing
	b := startServer(t, second)
	labels := map[string]string{"app": "web"}
	_, err := client.Create(t.Context(), b.client(t), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the trace", func() error {
		spans := collector.Spans()
		i := slices.IndexFunc(spans, func(s tracetest.Span) bool { return s.Service == "user" && s.Name == "create deployments" })
		if i < 0 {
			return errors.New("no root")
		}
		root := spans[i]
		if len(root.Links) != 1 || len(root.ParentSpanId) != 0 {
			return fmt.Errorf("the root has the links %v and the parent %s", root.Links, root.Parent())
		}
		for _, maker := range [][2]string{{"deployment-controller", "create replicasets"}, {"replicaset-controller", "create pods"}} {
			if !slices.ContainsFunc(spans, func(s tracetest.Span) bool {
				return s.Trace() == root.Trace() && s.Service == maker[0] && s.Name == maker[1]
			}) {
				return fmt.Errorf("no span %q of %s in the trace", maker[1], maker[0])
			}
		}
		return nil
	})
}
