package apiserver

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/client"
)

// hasMetrics looks for whole lines of the server's page.
func hasMetrics(t *testing.T, s *Server, lines ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range lines {
		if !strings.Contains(w.Body.String(), "\n"+want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestMetricsBeforeTheFirstRequest(t *testing.T) {
	w := httptest.NewRecorder()
	s := newTestServer(t)
	s.Register(measure.New().Collectors()...) // of an admission chain
	s.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`pod_security_exemptions_total{request_operation="create",resource="pod",subresource=""} `,
		`pod_security_exemptions_total{request_operation="update",resource="controller",subresource=""} `,
		`pod_security_evaluations_total{decision="allow",mode="enforce",policy_level="privileged",policy_version="latest",request_operation="update",resource="pod",subresource=""} `,
		`kube_apiserver_pod_logs_backend_tls_failure_total 0`,
	} {
		if !strings.Contains(w.Body.String(), "\n"+want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestCertificateDurationsAreCounted(t *testing.T) {
	s := newTestServer(t)
	hour, day := int32(3600), int32(24*3600)
	_, issued := selfSigned(t, "a") // for much longer: it begins long ago
	old := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "kubernetes.io/kubelet-serving", ExpirationSeconds: &hour}}
	write := func(subresource string, change func(old, obj *certificatesv1.CertificateSigningRequest)) {
		from, to := old.DeepCopy(), old.DeepCopy()
		to.Status.Certificate = issued
		change(from, to)
		s.metrics.Writes.Written(subresource, from, to)
	}
	nothing := func(_, _ *certificatesv1.CertificateSigningRequest) {}
	write("", nothing)
	write("approval", nothing)
	write("status", func(from, _ *certificatesv1.CertificateSigningRequest) { from.Status.Certificate = issued })
	write("status", func(from, _ *certificatesv1.CertificateSigningRequest) { from.Spec.ExpirationSeconds = nil })
	write("status", func(_, to *certificatesv1.CertificateSigningRequest) { to.Status.Certificate = nil })
	write("status", nothing)
	write("status", func(from, _ *certificatesv1.CertificateSigningRequest) { from.Spec.SignerName = "example.com/a" })
	write("status", func(_, to *certificatesv1.CertificateSigningRequest) {
		to.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	})
	hasMetrics(t, s,
		`apiserver_certificates_registry_csr_requested_duration_total{signerName="kubernetes.io/kubelet-serving"} 2`,
		`apiserver_certificates_registry_csr_requested_duration_total{signerName="other"} 1`)
	for name, tc := range map[string]struct {
		asked, given int32
		want         bool
	}{
		"the requested duration": {hour, hour, true}, "dated back": {hour, hour + 299, true}, "a little of a long time": {day, day - 3600, true},
		"a much longer duration": {hour, day, false}, "much shorter": {day, hour, false},
	} {
		if got := telemetry.DurationHonored(time.Duration(tc.asked)*time.Second, time.Duration(tc.given)*time.Second); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTimestampComparisonsAreMeasured(t *testing.T) {
	s := newTestServer(t)
	c := s.ownClient()
	obj := mustCreate(t, c, configMap("one"))
	obj = obj.DeepCopy()
	obj.Data = map[string]string{"a": "b"}
	if _, err := client.Update(t.Context(), c, obj); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	counted := 0
	for _, path := range []telemetry.TimeComparison{telemetry.OtherManagedFields, telemetry.OtherFields, telemetry.OnlyOtherTimes} {
		_, rest, ok := strings.Cut(w.Body.String(), fmt.Sprintf("apiserver_request_timestamp_comparison_time_count{code_path=%q} ", path))
		if !ok {
			t.Fatalf("the metrics lack %s", path)
		}
		line, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		counted += n
	}
	if counted == 0 {
		t.Error("an update is not measured")
	}
}

// TestLogsOfUnverifiedKubelets: such logs are shown on request.
func TestLogsOfUnverifiedKubelets(t *testing.T) {
	s := newTestServer(t)
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "from "+r.URL.Path) }))
	t.Cleanup(kubelet.Close)
	at, err := url.Parse(kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, s.ownClient(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.Hostname()}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
	}})
	mustCreate(t, s.ownClient(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec: corev1.PodSpec{NodeName: "one", Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
	const log = "/api/v1/namespaces/default/pods/p/log"
	if code, _, answer := do(t, s, "GET", log, ""); code != http.StatusInternalServerError || !strings.Contains(answer, "x509: ") {
		t.Errorf("%d %s", code, answer)
	}
	if code, _, answer := do(t, s, "GET", log+"?insecureSkipTLSVerifyBackend=true", ""); code != http.StatusOK || answer != "from /containerLogs/default/p/c" {
		t.Errorf("%d %s", code, answer)
	}
	if code, _, answer := do(t, s, "GET", log+"?tailLines=x", ""); code != http.StatusBadRequest {
		t.Errorf("%d %s", code, answer)
	}
	if code, _, answer := do(t, s, "GET", log+"?tailLines=-1", ""); code != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", code, answer)
	}
	hasMetrics(t, s, "kube_apiserver_pod_logs_backend_tls_failure_total 1",
		`kube_apiserver_pod_logs_insecure_backend_total{usage="enforce_tls"} 2`, `kube_apiserver_pod_logs_insecure_backend_total{usage="skip_tls_allowed"} 1`)
}
