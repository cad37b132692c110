package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/controller/controllertest"
)

func TestDefaultSpreadingFindsTheServicesOfAPod(t *testing.T) {
	c := controllertest.New(t)
	for i, selector := range []map[string]string{
		{"app": "web"}, {"app": "web", "tier": "front"}, {"app": "web", "tier": "back"}, {"tier": "front"}, {"zone": "a", "app": "db"}, nil,
	} {
		controllertest.Create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}, Spec: corev1.ServiceSpec{
			Selector: selector, ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}},
		}})
	}
	w, err := openSelectors(t.Context(), c.Client)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		namespace string
		labels    map[string]string
		want      string
	}{
		{"default", map[string]string{"app": "web"}, "app=web"},
		{"default", map[string]string{"tier": "front", "app": "web", "x": "y"}, "app=web,app=web,tier=front,tier=front"},
		{"default", map[string]string{"app": "db", "zone": "a"}, "app=db,zone=a"},
		{"default", map[string]string{"app": "db"}, "<nil>"},
		{"default", nil, "<nil>"},
		{"other", map[string]string{"app": "web"}, "<nil>"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: one.namespace, Labels: one.labels}}
		c.Eventually(fmt.Sprint("the selector of ", one.labels), func() string {
			got := "<nil>"
			if s := w.of(pod); s != nil {
				got = s.String()
			}
			if got != one.want {
				return got + ", want " + one.want
			}
			return ""
		})
	}
}
