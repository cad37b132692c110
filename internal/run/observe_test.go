package run

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/network/nettest"
)

// observed starts a component that runs alone with a port, and returns its URL.
func (w *aloneWorld) observed(t *testing.T, leaf *pki.Leaf, run func(context.Context, Params) error) string {
	t.Helper()
	cfg := w.beside(t, leaf)
	address := nettest.FreeAddress(t)
	host, port, _ := strings.Cut(address, ":")
	// Without service accounts of their own, controllers may not even remove taints from nodes.
	cfg.Observe.BindAddress, cfg.Controllers.OwnAccounts = host, true
	cfg.Observe.SecurePort, _ = strconv.Atoi(port)
	w.start(t, cfg, run)
	return "https://" + address
}

// Access rules are those of upstream's components v1.36.3.
func TestComponentsAloneServeHealthAndMetrics(t *testing.T) {
	w := newAloneWorld(t)
	admin, err := clientcmd.BuildConfigFromFlags("", w.cfg.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reader"}}
	if _, err := client.Create(t.Context(), w.admin, account); err != nil {
		t.Fatal(err)
	}
	answer, err := w.admin.CreateSub(t.Context(), api.ResourceOf(account), "default", "reader", "token", request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token := answer.(*authenticationv1.TokenRequest).Status.Token
	get := func(url, bearer string, certificates ...tls.Certificate) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if bearer != "" {
			r.Header.Set("Authorization", "Bearer "+bearer)
		}
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}, DisableKeepAlives: true}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	controllers, scheduler := w.observed(t, w.keys.ControllerManager, Controllers), w.observed(t, w.keys.Scheduler, Scheduler)
	for name, url := range map[string]string{"kube-controller-manager": controllers, "kube-scheduler": scheduler} {
		w.eventually(t, name+" leads", func() bool {
			_, page := get(url+"/metrics", "", pair)
			return strings.Contains(page, `leader_election_master_status{name="`+name+`"} 1`)
		})
		for _, tc := range []struct {
			who, path, bearer string
			certificates      []tls.Certificate
			code              int
			want              string
		}{
			{"anybody", "/healthz", "", nil, 200, "ok"},
			{"anybody", "/livez", "", nil, 200, "ok"},
			{"anybody", "/readyz?verbose", "", nil, 200, "[+]leaderElection ok\nreadyz check passed\n"},
			{"anybody", "/healthz/leaderElection", "", nil, 403, `forbidden: User \"system:anonymous\" cannot get path \"/healthz/leaderElection\"`},
			{"anybody", "/metrics", "", nil, 403, `"reason": "Forbidden"`},
			{"an account without the right", "/metrics", token, nil, 403, `User \"system:serviceaccount:default:reader\" cannot get path \"/metrics\"`},
			{"a bad token", "/metrics", "bad", nil, 401, `"reason": "Unauthorized"`},
			{"an administrator", "/metrics", "", []tls.Certificate{pair}, 200, `rest_client_requests_total{code="201",host="`},
			{"an administrator", "/metrics", "", []tls.Certificate{pair}, 200, "\nkubernetes_build_info{"},
			{"an administrator", "/metrics/slis", "", []tls.Certificate{pair}, 200, `kubernetes_healthcheck{name="leaderElection",type="readyz"} 1`},
			{"an administrator", "/healthz/leaderElection", "", []tls.Certificate{pair}, 200, "ok"},
			{"an administrator", "/configz", "", []tls.Certificate{pair}, 200, `"resourceName":"` + name + `"`},
			{"an administrator", "/statusz", "", []tls.Certificate{pair}, 200, "Paths  /configz /healthz /livez /metrics /readyz"},
			{"anybody", "/debug/pprof/", "", nil, 403, `"reason": "Forbidden"`},
			{"an administrator", "/debug/pprof/", "", []tls.Certificate{pair}, 200, "goroutine"},
			{"an administrator", "/debug/flags/v", "", []tls.Certificate{pair}, 406, "unsupported http method"},
			{"an administrator", "/nothing", "", []tls.Certificate{pair}, 404, "404 page not found"},
		} {
			if code, body := get(url+tc.path, tc.bearer, tc.certificates...); code != tc.code || !strings.Contains(body, tc.want) {
				t.Errorf("%s: %s by %s: %d %.300s", name, tc.path, tc.who, code, body)
			}
		}
	}
	if _, body := get(controllers+"/healthz?verbose", "", pair); !strings.Contains(body, "[+]leaderElection ok\n") || !strings.Contains(body, "[+]garbage-collector-controller ok\n") {
		t.Errorf("the health of controllers: %s", body)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nowhere"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	w.eventually(t, "the pod's account is there", func() bool {
		_, err := client.Create(t.Context(), w.admin, pod.DeepCopy())
		return err == nil
	})
	tells := func(url string, wants ...string) func() bool {
		return func() bool {
			_, page := get(url+"/metrics", "", pair)
			return !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(page, "\n"+want) })
		}
	}
	w.eventually(t, "a pod without a node is counted", tells(scheduler, `scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"} `,
		`scheduler_scheduling_attempt_duration_seconds_count{profile="default-scheduler",result="unschedulable"} `, `scheduler_pending_pods{queue="unschedulable"} 1`, `scheduler_cache_size{type="nodes"} 0`))
	w.node(t, "sea")
	w.eventually(t, "a pod with a node is counted", tells(scheduler, `scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} `,
		`scheduler_pod_scheduling_sli_duration_seconds_count{attempts="`, `scheduler_pending_pods{queue="unschedulable"} 0`, `scheduler_cache_size{type="nodes"} 1`))
	for name, spec := range map[string]corev1.PodSpec{
		"gated":     {SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/gate"}}},
		"elsewhere": {NodeSelector: map[string]string{"a": "b"}},
	} {
		spec.Containers = pod.Spec.Containers
		if _, err := client.Create(t.Context(), w.admin, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	const profile = `profile="default-scheduler"`
	w.eventually(t, "waiting pods and scheduling times are reported", tells(scheduler, `scheduler_pending_pods{queue="gated"} 1`,
		`scheduler_unschedulable_pods{plugin="SchedulingGates",`+profile+`} 1`, `scheduler_unschedulable_pods{plugin="NodeAffinity",`+profile+`} 1`,
		`scheduler_queue_incoming_pods_total{event="UnschedulablePodAdd",queue="active"} `, `scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"} `,
		`scheduler_framework_extension_point_duration_seconds_count{extension_point="Filter",`+profile+`,status="Success"} `,
		`scheduler_framework_extension_point_duration_seconds_count{extension_point="Bind",`+profile+`,status="Success"} `))
	w.eventually(t, "the controllers' work is reported", tells(controllers, `workqueue_adds_total{name="`, `workqueue_depth{name="`, `node_collector_zone_size{zone=""} 1`,
		`node_collector_zone_health{zone=""} `, "taint_eviction_controller_pod_deletions_total "))
}

func TestAComponentUsesTheConfiguredCertificateForAllNames(t *testing.T) {
	keys, err := pki.Open(pki.Config{Dir: t.TempDir(), NodeName: "sea"})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := keys.Issue(pki.Spec{File: "given", CommonName: "given", Names: []string{"given.example.com"}, ServerOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := leaf.PEM()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	given := config.Serving{TLSCert: filepath.Join(dir, "crt"), TLSKey: filepath.Join(dir, "key")}
	for path, data := range map[string][]byte{given.TLSCert: certPEM, given.TLSKey: keyPEM} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		serving config.Serving
		given   bool
	}{"with files": {given, true}, "without": {config.Serving{}, false}} {
		cfg := config.Default()
		cfg.NodeName, cfg.AdvertiseAddress, cfg.Observe.Serving = "machine", "192.0.2.1", tc.serving
		secure, _, err := observedTLS(t.Context(), &cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for _, asked := range []string{"machine", "given.example.com", "another.example.com", ""} {
			cert, err := secure.GetCertificate(&tls.ClientHelloInfo{ServerName: asked})
			if err != nil {
				t.Errorf("%s, requesting %q: %v", name, asked, err)
			} else if got := cert.Leaf.Subject.CommonName; (got == "given") != tc.given {
				t.Errorf("%s, requesting %q, is shown %s", name, asked, got)
			}
		}
	}
}
