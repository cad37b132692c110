package timeline

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/cli"
	"github.com/knarr-project/knarr/knarrtest"
)

// A mistyped name must not look like an object without changes or relations.
func TestAbsentThingsAreNamed(t *testing.T) {
	c := knarrtest.Start(t)
	client, ctx := clientOf(t, c.Config()), t.Context()
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "harbour"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("harbour").Create(ctx, web(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	settings := client.CoreV1().ConfigMaps("harbour")
	if _, err := settings.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "old"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := settings.Delete(ctx, "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the history does not reach back to the last moment", func() bool {
		return !strings.Contains(knarr(t, c.KubeconfigPath(), "diff", "-A", "--since", "1ms"), "does not reach back")
	})
	const similar = "; did you mean harbour?"
	for _, one := range []struct{ command, failure string }{
		{"map -n harbor", "map: namespace harbor does not exist" + similar},
		{"map harbuor -n harbour", `map: no component belongs to the system "harbuor"` + similar},
		{"map -n harbour", ""},
		{"map -n kube-node-lease", ""},
		{"impact deploy/wbe -n harbour", "impact: deployment/wbe in namespace harbour does not exist; did you mean web?"},
		{"impact deploy/web -n harbor", "impact: namespace harbor does not exist" + similar},
		{"impact ns/harbor", "impact: namespace harbor does not exist" + similar},
		{"impact component/wbe -n harbour", "impact: component/wbe in namespace harbour does not exist; did you mean web?"},
		{"impact node/one", "impact: node/one does not exist; there are no nodes"},
		{"impact cm/kube-root-ca.crt -n harbour", "impact: no component uses ConfigMap kube-root-ca.crt in the namespace harbour"},
		{"trace deploy/wbe -n harbour", "neither the cluster nor the causal logs have deployment/wbe in namespace harbour; did you mean web?"},
		{"trace deploy/web -n harbor", "neither the cluster nor the causal logs have deployment/web in namespace harbor; the namespace harbor does not exist" + similar},
		{"trace deploy/web -n harbour", ""},
		{"trace cm/old -n harbour", ""},
		{"diff deploy/wbe -n harbour", "neither the cluster nor its history of objects has deployment/wbe in namespace harbour; did you mean web?"},
		{"diff deploy/wbe -A", "neither the cluster nor its history of objects has deployment/wbe; did you mean web?"},
		{"diff sts/wbe -n harbour", "neither the cluster nor its history of objects has statefulset/wbe in namespace harbour; there are no statefulsets there"},
		{"diff -n harbor", "neither the cluster nor its history of objects has namespace harbor" + similar},
		{"diff -n harbour --since 1ms", ""},
		{"diff cm/old -n harbour --since 1ms", ""},
		{"diff deploy/web -A --since 1ms", ""},
		{"diff -A --since 1ms", ""},
		{"timeline deploy/wbe -n harbour", "neither the cluster nor its history of objects has deployment/wbe in namespace harbour; did you mean web?"},
		{"timeline configmaps -n harbor", "neither the cluster nor its history of objects has namespace harbor" + similar},
		{"timeline cm/old -n harbour", ""},
	} {
		var out bytes.Buffer
		root := cli.Root()
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append(strings.Fields(one.command), "--kubeconfig", c.KubeconfigPath()))
		failure := ""
		if err := root.ExecuteContext(ctx); err != nil {
			failure = err.Error()
		}
		if failure != one.failure {
			t.Errorf("knarr %s: %q, not %q\n%s", one.command, failure, one.failure, out.String())
		}
	}
}
