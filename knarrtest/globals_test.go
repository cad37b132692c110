package knarrtest_test

import (
	"strconv"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/cel-go/cel"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/knarrtest"
)

// libraryReads reports whether the expression library of this process still reads a quantity that
// knarr refuses.
func libraryReads(t *testing.T, env *cel.Env) bool {
	t.Helper()
	ast, issues := env.Compile("isQuantity('1e-2000')")
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	value, _, err := program.Eval(map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	return value.Value() == true
}

// sum adds up the series of a counter, or the observations of a histogram, on a cluster's /metrics.
func sum(t *testing.T, k kubernetes.Interface, name string) (total float64) {
	t.Helper()
	page, err := k.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if series, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && (series == name || strings.HasPrefix(series, name+"{")) {
			n, err := strconv.ParseFloat(value[strings.LastIndexByte(value, ' ')+1:], 64)
			if err != nil {
				t.Fatal(err)
			}
			total += n
		}
	}
	return total
}

func TestEachClusterCountsItsOwnWork(t *testing.T) {
	t.Parallel()
	busy, idle := knarrtest.Start(t, knarrtest.WithNodes(1)), knarrtest.Start(t, knarrtest.WithControllers())
	k, other := clientset(t, busy), clientset(t, idle)
	if _, err := k.CoreV1().Pods("default").Create(t.Context(), pod("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is scheduled", func() (bool, error) { return sum(t, k, "scheduler_schedule_attempts_total") > 0, nil })
	eventually(t, "the node is counted", func() (bool, error) { return sum(t, k, "node_collector_zone_size") > 0, nil })
	for _, name := range []string{
		"scheduler_schedule_attempts_total", "workqueue_adds_total", "node_collector_zone_size", "pod_security_evaluations_total",
	} {
		if sum(t, k, name) == 0 {
			t.Errorf("%s of the busy cluster is 0", name)
		}
		if n := sum(t, other, name); n != 0 {
			t.Errorf("%s of the idle cluster is %v", name, n)
		}
	}
}

func TestAClusterLeavesTheGlobalsOfLibrariesAlone(t *testing.T) {
	t.Parallel()
	k := clientset(t, knarrtest.Start(t))
	maps := k.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Patch(t.Context(), "a", types.JSONPatchType, []byte(`[{"op":"copy","from":"/data/k","path":"/data/l"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := k.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "quantities"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "quantity('1').isInteger()"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if jsonpatch.AccumulatedCopySizeLimit != 0 {
		t.Errorf("JSON patches of the whole program may copy %d bytes", jsonpatch.AccumulatedCopySizeLimit)
	}
	shared := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	for name, env := range map[string]*cel.Env{"new": shared.NewExpressionsEnv(), "stored": shared.StoredExpressionsEnv()} {
		if !libraryReads(t, env) {
			t.Errorf("%s expressions of the whole program read quantities by knarr's rules", name)
		}
	}
}
