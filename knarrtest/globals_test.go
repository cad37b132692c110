package knarrtest_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/cel-go/cel"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/knarr-project/knarr/knarrtest"
)

// libraryReads reports whether the expression library of this process still reads a quantity that knarr refuses.
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
