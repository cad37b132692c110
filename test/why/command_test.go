package why

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/cli"
	"github.com/knarr-project/knarr/internal/insight/why"
	"github.com/knarr-project/knarr/knarrtest"
)

// run runs knarr with a kubeconfig, and returns its output and exit status.
func run(t *testing.T, kubeconfig string, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	root := cli.Root()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append(args, "--kubeconfig", kubeconfig))
	err := root.ExecuteContext(t.Context())
	status := cli.Status(err)
	if err != nil && status == 2 {
		out.WriteString(err.Error())
	}
	t.Logf("$ knarr %s\n%s(exit status %d)", strings.Join(args, " "), out.String(), status)
	return out.String(), status
}

// TestTheCommandExplains runs `knarr why` as users run it.
func TestTheCommandExplains(t *testing.T) {
	c := knarrtest.Start(t, knarrtest.WithNodes(2), knarrtest.WithFate(fate))
	b := brokenOf(t, c)
	admin := c.KubeconfigPath()
	b.awaitAccount(t.Context(), "default")
	if _, status := run(t, admin, "why", "-n", "kube-public"); status != 0 {
		t.Errorf("a namespace without a fault: exit status %d, not 0", status)
	}
	s := situation{objects: []string{
		"kind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {volumes: [{name: d, persistentVolumeClaim: {claimName: data}}], containers: [{name: c, image: app}]}}}",
		"kind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}",
		"kind: Pod\nmetadata: {name: report}\nspec: {nodeSelector: {disk: ssd}, containers: [{name: c, image: app, resources: {requests: {cpu: \"12\"}}}]}",
	}}
	b.build(t.Context(), &s, "default")
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		text, status := run(t, admin, "why", "svc/web")
		if status == 1 && strings.Contains(text, "root cause: storageclass/fast: it does not exist.") && strings.Contains(text, "because") {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the missing class is not named")
		}
	}
	for _, line := range strings.Split(outputOf(run(t, admin, "why", "pod/report")), "\n") {
		if len([]rune(line)) > 100 {
			t.Errorf("a line is longer than 100 columns: %s", line)
		}
	}
	sweep, status := run(t, admin, "why", "-A")
	if status != 1 || !strings.Contains(sweep, "1. storageclass/fast") {
		t.Errorf("the class that affects most objects is not the first: %s", sweep)
	}
	var answer why.Answer
	text, _ := run(t, admin, "why", "po", "report", "-o", "json")
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Roots) == 0 || len(answer.Roots[0].Nodes) != 2 {
		t.Errorf("JSON has no verdicts on both nodes: %v", err)
	}
	for _, args := range [][]string{{"why", "pod"}, {"why", "widget/x"}, {"why", "deny", "--as", "ann"}, {"why", "deny", "pod/a", "cm/b", "--port", "80"}, {"why", "deny", "nonsense"}} {
		if _, status := run(t, admin, args...); status != 2 {
			t.Errorf("%v: exit status %d, not 2", args, status)
		}
	}
	if _, status := run(t, admin, "why", "deny", "--as", "ann", "list", "secrets"); status != 1 {
		t.Errorf("a denied request: exit status %d, not 1", status)
	}
	message := `secrets "x" is forbidden: User "ann" cannot delete resource "secrets" in API group "" in the namespace "default"`
	if text, status := run(t, admin, "why", "deny", message); status != 1 || !strings.Contains(text, "no rule lets ann delete secrets x in namespace default") {
		t.Errorf("the API server's message: exit status %d, not 1: %s", status, text)
	}
	if text, status := run(t, admin, "why", "deny", "get", "secrets"); status != 0 || !strings.Contains(text, "may get secrets") {
		t.Errorf("the caller's own request: exit status %d, not 0: %s", status, text)
	}
	if text, status := run(t, admin, "why", "deny", "--as", "ann", "get", "/metrics"); status != 1 || !strings.Contains(text, "--non-resource-url=/metrics") {
		t.Errorf("a path: exit status %d, not 1: %s", status, text)
	}
	if text, status := run(t, admin, "why", "deny", "--as", "system:node:node-0", "--as-group", "system:nodes", "get", "nodes/node-0"); status != 0 || !strings.Contains(text, "not by RBAC") {
		t.Errorf("a request that the node authorizer allows: exit status %d, not 0: %s", status, text)
	}
	if _, status := run(t, admin, "why", "deny", "--as", "system:admin", "--as-group", "system:masters", "list", "secrets"); status != 0 {
		t.Errorf("an allowed request: exit status %d, not 0", status)
	}
}

// TestAKubeconfigOfAnotherClusterIsNamed asks with a kubeconfig that trusts another CA.
func TestAKubeconfigOfAnotherClusterIsNamed(t *testing.T) {
	c := knarrtest.Start(t)
	config, err := clientcmd.LoadFromFile(c.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	other := newAuthorities(t)[1]
	for _, cluster := range config.Clusters {
		cluster.CertificateAuthority, cluster.CertificateAuthorityData = "", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.cert.Raw})
	}
	kubeconfig := filepath.Join(t.TempDir(), "other")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"why", "-A"}, {"why", "widget/x"}, {"why", "deny", "list", "pods"}} {
		if text, status := run(t, kubeconfig, args...); status != 1 || !strings.Contains(text, "it does not trust the certificate of the API server") {
			t.Errorf("%v: exit status %d: %s", args, status, text)
		}
	}
}

func outputOf(text string, _ int) string { return text }

// TestUnreadableObjectsAreNamed asks as a user who may read pods of one namespace only.
func TestUnreadableObjectsAreNamed(t *testing.T) {
	c := knarrtest.Start(t, knarrtest.WithNodes(1))
	b := brokenOf(t, c)
	b.awaitAccount(t.Context(), "default")
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "events"}, Verbs: []string{"get", "list"}}}}
	if _, err := b.typed.RbacV1().Roles("default").Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "pods"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"}}}
	if _, err := b.typed.RbacV1().RoleBindings("default").Create(t.Context(), bind, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s := situation{objects: []string{"kind: Pod\nmetadata: {name: web}\nspec: {volumes: [{name: d, persistentVolumeClaim: {claimName: data}}], containers: [{name: c, image: app}]}"}}
	b.build(t.Context(), &s, "default")
	data, err := c.KubeconfigAs("ann")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "ann")
	if err := os.WriteFile(kubeconfig, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		text, _ := run(t, kubeconfig, "why", "pod/web")
		if strings.Contains(text, "cannot read persistentvolumeclaims/data in namespace default") && strings.Contains(text, "cannot read nodes") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the unread claims and nodes are not named: %s", text)
		}
	}
}
