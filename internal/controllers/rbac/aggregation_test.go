package rbac_test

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/rbac"
)

func TestARoleCollectsTheRulesOfThoseItSelects(t *testing.T) {
	c := controllertest.New(t)
	c.Run(rbac.Aggregation)
	role := func(name, resource string, labels map[string]string) {
		t.Helper()
		r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if resource != "" {
			r.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}}}
		} else {
			r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": "sum"}}}}
		}
		if _, err := client.Create(t.Context(), c.Client, r); err != nil {
			t.Fatal(err)
		}
	}
	role("sum", "", nil)
	role("b", "pods", map[string]string{"to": "sum"})
	role("a", "secrets", map[string]string{"to": "sum"})
	role("c", "nodes", nil)
	c.Eventually("two rules", func() string {
		r, err := client.Get[*rbacv1.ClusterRole](t.Context(), c.Client, "", "sum")
		if err != nil || len(r.Rules) != 2 || r.Rules[0].Resources[0] != "secrets" || r.Rules[1].Resources[0] != "pods" {
			return fmt.Sprintf("%v %+v", err, r.Rules)
		}
		return ""
	})
}
