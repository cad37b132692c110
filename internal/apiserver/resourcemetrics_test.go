package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/knarr-project/knarr/internal/apiserver/node"
	"github.com/knarr-project/knarr/internal/client"
)

// measuredNode is a node whose kubelet reports its own usage (two cores) and that of the pods
// "even" (half a core) and "pending".
func measuredNode(t *testing.T) *corev1.Node {
	t.Helper()
	began := time.Now()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics/resource" {
			http.NotFound(w, r)
			return
		}
		at, seconds := time.Now(), time.Since(began).Seconds()
		fmt.Fprintf(w, "node_cpu_usage_seconds_total %v %d\nnode_memory_working_set_bytes 1e+09\n", 1000+2*seconds, at.UnixMilli())
		for _, pod := range []string{"even", "pending"} {
			labels := fmt.Sprintf(`{container="c",namespace="default",pod=%q}`, pod)
			fmt.Fprintf(w, "container_cpu_usage_seconds_total%s %v %d\ncontainer_memory_working_set_bytes%s 1048576\n", labels, 100+seconds/2, at.UnixMilli(), labels)
		}
	}))
	t.Cleanup(kubelet.Close)
	at, err := url.Parse(kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.Atoi(at.Port())
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"zone": "a"}}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.Hostname()}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
	}}
}

func TestResourceMetrics(t *testing.T) {
	s := newTestServer(t, withServices, func(c *Config) { c.KubeletTLS = node.InsecureTLS() })
	s.startBackground()
	ts := httptest.NewServer(s.Handler())
	t.Cleanup(ts.Close)
	ctx, c := t.Context(), s.ownClient()
	node := measuredNode(t)
	if _, err := client.Create(ctx, c, node); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(ctx, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "silent"}}); err != nil {
		t.Fatal(err)
	}
	for name, phase := range map[string]corev1.PodPhase{"even": corev1.PodRunning, "unmeasured": corev1.PodRunning, "pending": corev1.PodPending} {
		pod, err := client.Create(ctx, c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}},
			Spec: corev1.PodSpec{NodeName: "one", Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
		if err != nil {
			t.Fatal(err)
		}
		pod = pod.DeepCopy()
		pod.Status.Phase = phase
		if _, err := client.UpdateStatus(ctx, c, pod); err != nil {
			t.Fatal(err)
		}
	}
	const api, table = "/apis/metrics.k8s.io/v1beta1/", "application/json;as=Table;v=v1;g=meta.k8s.io"
	cases := []struct {
		name, path, accept string
		code               int
		want, without      string
	}{
		{"the nodes that answer", "nodes", "", 200, `"metadata":{"name":"one","creationTimestamp":`, `silent`},
		{"as a table", "nodes", table, 200, `"cells":["one","`, `silent`},
		{"one node", "nodes/one", "", 200, `"kind":"NodeMetrics"`, `"items"`},
		{"a node that does not answer", "nodes/silent", "", 503, "node silent could not be asked", ""},
		{"a missing node", "nodes/none", "", 404, `nodes.metrics.k8s.io \"none\" not found`, ""},
		{"running pods that are measured", "pods", "", 200, `"containers":[{"name":"c","usage":{"cpu":"`, "pending"},
		{"pods of a namespace", "namespaces/default/pods", "", 200, `"name":"even","namespace":"default"`, "unmeasured"},
		{"pods of another", "namespaces/kube-system/pods", "", 200, `"items":[]`, "even"},
		{"pods by label", "pods?labelSelector=app%3Deven", "", 200, `"labels":{"app":"even"}`, ""},
		{"pods by a label that none has", "pods?labelSelector=app%3Dodd", "", 200, `"items":[]`, ""},
		{"pods by name", "pods?fieldSelector=metadata.name%3Deven", "", 200, `"memory":"1Mi"`, ""},
		{"one pod", "namespaces/default/pods/even", table, 200, `"cells":["even","`, ""},
		{"a pod without measurements", "namespaces/default/pods/unmeasured", "", 404, "not found", ""},
		{"watches are not supported", "pods?watch=true", "", 405, "", ""},
		{"writes are not supported", "namespaces/default/pods", "POST", 405, "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			method := http.MethodGet
			if c.accept == "POST" {
				method, c.accept = "POST", ""
			}
			req, _ := http.NewRequestWithContext(ctx, method, ts.URL+api+c.path, nil)
			req.Header.Set("Accept", c.accept)
			rec := httptest.NewRecorder()
			s.Handler().ServeHTTP(rec, req)
			body := rec.Body.String()
			if rec.Code != c.code || !strings.Contains(body, c.want) || c.without != "" && strings.Contains(body, c.without) {
				t.Errorf("%d %s", rec.Code, body)
			}
		})
	}
	t.Run("components ask in process", func(t *testing.T) {
		obj, err := c.List(ctx, metricsv1beta1.SchemeGroupVersion.WithResource("pods"), "default", metav1.ListOptions{LabelSelector: "app=even"})
		if list, ok := obj.(*metricsv1beta1.PodMetricsList); err != nil || !ok || len(list.Items) != 1 {
			t.Errorf("%v, %v", obj, err)
		}
	})
	t.Run("an extension server takes precedence while it is registered", func(t *testing.T) { extensionTakesPrecedence(t, s, ts.URL+api) })
}

func extensionTakesPrecedence(t *testing.T, s *Server, url string) {
	service := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1beta1.metrics.k8s.io"}, Spec: apiregistrationv1.APIServiceSpec{
		Group: "metrics.k8s.io", Version: "v1beta1", GroupPriorityMinimum: 100, VersionPriority: 100, InsecureSkipTLSVerify: true,
		Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "none"},
	}}
	if _, err := client.Create(t.Context(), s.ownClient(), service); err != nil {
		t.Fatal(err)
	}
	answers := func(code int) {
		t.Helper()
		eventually(t, func() error {
			if resp, body := fetch(t, url+"nodes"); resp.StatusCode != code {
				return fmt.Errorf("%s: %s", resp.Status, body)
			}
			return nil
		})
	}
	answers(http.StatusServiceUnavailable)
	if err := client.Delete[*apiregistrationv1.APIService](t.Context(), s.ownClient(), "", service.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	answers(http.StatusOK)
}
