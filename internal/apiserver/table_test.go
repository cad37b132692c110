package apiserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

func TestTablesOfVirtualObjects(t *testing.T) {
	s := newTestServer(t)
	replicas := int32(2)
	labels := map[string]string{"app": "web"}
	_, err := client.Create(t.Context(), s.ownClient(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const componentStatuses, scale = "/api/v1/componentstatuses", "/apis/apps/v1/namespaces/default/deployments/web/scale"
	for _, c := range []struct{ name, path, as, want string }{
		{"component statuses", componentStatuses, "Table", `"cells":["etcd-0","Healthy","ok",""]`},
		{"a component status", componentStatuses + "/etcd-0", "Table", `"cells":["etcd-0","Healthy","ok",""]`},
		{"selected component statuses", componentStatuses + "?fieldSelector=metadata.name%3Dscheduler", "Table", `"rows":[]`},
		{"metadata of component statuses", componentStatuses, "PartialObjectMetadataList", `"items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"etcd-0"}}]`},
		{"a scale", scale, "Table", `"cells":["web",2,0,"`},
		{"metadata of a scale", scale, "PartialObjectMetadata", `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"web","namespace":"default"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil)
			req.Header.Set("Accept", "application/json;as="+c.as+";v=v1;g=meta.k8s.io")
			rec := httptest.NewRecorder()
			s.Handler().ServeHTTP(rec, req)
			if body := rec.Body.String(); rec.Code != http.StatusOK || !strings.Contains(body, c.want) {
				t.Errorf("%d %s", rec.Code, body)
			}
		})
	}
}

func TestFlowSchemaTableIsOrderedByPrecedence(t *testing.T) {
	s := newTestServer(t)
	for name, precedence := range map[string]int32{"a": 9000, "b": 100, "c": 500, "d": 100} {
		schema := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence: precedence, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "x"}}}
		if _, err := client.Create(t.Context(), s.ownClient(), schema); err != nil {
			t.Fatal(err)
		}
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", nil)
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, req)
	var table metav1.Table
	if err := json.Unmarshal(rec.Body.Bytes(), &table); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range table.Rows {
		if name := row.Cells[0].(string); len(name) == 1 {
			names = append(names, name)
		}
	}
	if got := strings.Join(names, " "); got != "b d c a" {
		t.Errorf("the rows are %s", got)
	}
}
