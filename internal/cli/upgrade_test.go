package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/upgrade"
	"github.com/knarr-project/knarr/internal/version"
)

// voyage is a server that gives turns, with machines that follow them at once.
type voyage struct {
	mu     sync.Mutex // guards the fields below
	status upgrade.Status
	orders int               // Orders that were posted
	fails  map[string]string // a machine's error at its turn
	turns  []string          // machines that had their turn
}

func (v *voyage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(v.status)
		return
	}
	o := &upgrade.Order{}
	if err := json.NewDecoder(r.Body).Decode(o); err != nil || o.Validate() != nil {
		http.Error(w, "not usable", http.StatusBadRequest)
		return
	}
	if have := v.status.Order; have != nil && have.Generation != o.Generation || have == nil && o.Generation != 0 {
		http.Error(w, "another one has changed the order", http.StatusConflict)
		return
	}
	v.orders++
	o.Generation = int64(v.orders + 100)
	v.status.Order = o
	if o.Finished {
		v.status.Order, o.Turns = nil, nil
	}
	for i := range v.status.Reports {
		report := &v.status.Reports[i]
		if report.Kind == upgrade.Server {
			report.Has = o.Program.SHA256
		}
		for _, t := range o.Turns {
			if t.Kind == report.Kind && t.Name == report.Name && t.Nonce != report.Nonce {
				v.turn(report, t, o.Program)
			}
		}
	}
	_ = json.NewEncoder(w).Encode(o)
}

func (v *voyage) turn(report *upgrade.Report, t upgrade.Turn, p upgrade.Program) {
	report.Nonce = t.Nonce
	v.turns = append(v.turns, t.Name)
	if text := v.fails[t.Name]; text != "" {
		report.Phase, report.Error = upgrade.Failed, text
		return
	}
	report.Build = p.Build
	for i := range v.status.Servers {
		if s := &v.status.Servers[i]; s.Name == t.Name {
			s.Version = p.Build.Knarr
		}
	}
}

func (v *voyage) had() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.Join(v.turns, " ")
}

const oldRelease, newRelease = "v1.36.3+knarr1", "v1.36.3+knarr2"

func releaseOf(knarr string) version.Build {
	return version.Build{Knarr: knarr, Kubernetes: version.Kubernetes, Platform: version.Current().Platform}
}

// upgradeOf returns a command against servers and nodes of the old release.
func upgradeOf(t *testing.T, servers, nodes []string) (*upgrading, *voyage, *bytes.Buffer) {
	t.Helper()
	v := &voyage{fails: map[string]string{}}
	for _, name := range servers {
		m := member.Member{Name: name, Version: oldRelease, Health: member.Healthy}
		v.status.Servers = append(v.status.Servers, upgrade.ServerState{Member: m, Ready: member.Healthy})
		v.status.Reports = append(v.status.Reports, upgrade.Report{Kind: upgrade.Server, Name: name, Build: releaseOf(oldRelease), Free: 1 << 40})
	}
	var objects []runtime.Object
	for _, name := range nodes {
		v.status.Reports = append(v.status.Reports, upgrade.Report{Kind: upgrade.Node, Name: name, Build: releaseOf(oldRelease), Free: 1 << 40})
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.NodeInfo.KubeletVersion = version.Kubernetes
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		objects = append(objects, n)
	}
	kube := fake.NewClientset(objects...)
	renewed := time.Unix(0, 0)
	kube.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		renewed = renewed.Add(time.Second)
		return true, &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}}}, nil
	})
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	cfg := config.Default()
	cfg.DataDir, cfg.NodeName = t.TempDir(), "a"
	access := clientcmdapi.NewConfig()
	access.Clusters["c"], access.Contexts["c"], access.CurrentContext = &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.Context{Cluster: "c"}, "c"
	if err := clientcmd.WriteToFile(*access, cfg.AdminKubeconfig()); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "knarr")
	if err := os.WriteFile(program, []byte("the new one"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum, size, err := upgrade.Sum(program)
	if err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	return &upgrading{
		upgradeOptions: &upgradeOptions{from: program, maxUnavailable: "1", poll: time.Millisecond, machineTimeout: time.Minute},
		out:            out, cfg: &cfg, kube: kube, program: upgrade.Program{Build: releaseOf(newRelease), SHA256: sum, Size: size},
	}, v, out
}

func TestAnUpgradeGivesServersTheirTurnsBeforeNodes(t *testing.T) {
	u, v, out := upgradeOf(t, []string{"a", "b", "c"}, []string{"n1", "n2"})
	v.status.Servers[0].Leader = true
	if err := u.carryOut(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := v.had(); got != "b c a n1 n2" || v.status.Order != nil {
		t.Errorf("turns of %s, the order is %+v", got, v.status.Order)
	}
}

func TestAnUpgradeIsRefusedWhileAServerIsDown(t *testing.T) {
	u, v, out := upgradeOf(t, []string{"a", "b", "c"}, []string{"n1"})
	v.status.Servers[2].Ready = "no answer"
	err := u.carryOut(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nothing is changed") || !strings.Contains(out.String(), "server c is not ready: no answer") || v.orders > 0 {
		t.Errorf("%v after %d orders\n%s", err, v.orders, out)
	}
}

// TestAnUpgradeLeavesOutANodeThatIsDown upgrades the others, and the node when it is back.
func TestAnUpgradeLeavesOutANodeThatIsDown(t *testing.T) {
	u, v, out := upgradeOf(t, []string{"a"}, []string{"n1", "n2"})
	setReady := func(status corev1.ConditionStatus) {
		n, err := u.kube.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.Status.Conditions[0].Status = status
		if _, err := u.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	setReady(corev1.ConditionUnknown)
	if err := u.carryOut(t.Context()); err != nil || v.had() != "a n2" || !strings.Contains(out.String(), "left out  node n1") {
		t.Fatalf("turns of %s, %v\n%s", v.had(), err, out)
	}
	setReady(corev1.ConditionTrue)
	if err := u.carryOut(t.Context()); err != nil || v.had() != "a n2 n1" {
		t.Errorf("turns of %s, %v\n%s", v.had(), err, out)
	}
}

func TestAnUpgradeStopsAtTheFirstFailureAndGoesOnLater(t *testing.T) {
	u, v, out := upgradeOf(t, []string{"a"}, []string{"n1", "n2"})
	v.fails["n1"] = "the disk is full"
	err := u.carryOut(t.Context())
	if err == nil || !strings.Contains(err.Error(), "node n1: the disk is full") || v.had() != "a n1" || !strings.Contains(out.String(), "go on") {
		t.Fatalf("turns of %s, %v\n%s", v.had(), err, out)
	}
	delete(v.fails, "n1")
	out.Reset()
	if err := u.carryOut(t.Context()); err != nil || v.had() != "a n1 n1 n2" || !strings.Contains(out.String(), "continuing the upgrade of") {
		t.Errorf("turns of %s, %v\n%s", v.had(), err, out)
	}
}

// TestANodeThatAnInterruptedUpgradeHasCordonedIsUncordoned has the command killed after the turn of
// n1: it runs the program, and is still cordoned. Node n2 was cordoned by an administrator.
func TestANodeThatAnInterruptedUpgradeHasCordonedIsUncordoned(t *testing.T) {
	u, v, out := upgradeOf(t, []string{"a"}, []string{"n1", "n2"})
	v.status.Order = &upgrade.Order{Program: u.program, Generation: 7, Turns: []upgrade.Turn{{Kind: upgrade.Node, Name: "n1", Nonce: "x"}}}
	for i := range v.status.Reports {
		v.status.Reports[i].Build = u.program.Build
	}
	v.status.Servers[0].Version = newRelease
	for name, mark := range map[string]map[string]string{"n1": {upgrade.CordonedAnnotation: "true"}, "n2": nil} {
		n, err := u.kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.Annotations, n.Spec.Unschedulable = mark, true
		if _, err := u.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.carryOut(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, want := range map[string]bool{"n1": false, "n2": true} {
		n, err := u.kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if _, marked := n.Annotations[upgrade.CordonedAnnotation]; err != nil || n.Spec.Unschedulable != want || marked {
			t.Errorf("node %s: unschedulable %v, annotations %v, %v", name, n.Spec.Unschedulable, n.Annotations, err)
		}
	}
	if v.had() != "" || v.status.Order != nil {
		t.Errorf("turns of %q, the order is %+v", v.had(), v.status.Order)
	}
}
