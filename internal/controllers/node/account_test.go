package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/rbac"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
)

func TestTheRightToReadAllPodsEndsWithTheLastNodeThatNeedsIt(t *testing.T) {
	c := controllertest.New(t)
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rbac.RetiredNodeRole}
	controllertest.Create(c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: rbac.RetiredNodeRole}})
	controllertest.Create(c, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: rbac.RetiredNodeRole}, RoleRef: role})
	controllertest.Create(c, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: rbac.RetiredNodeRole}, RoleRef: role})
	mark := func(name string, annotations map[string]string) {
		controllertest.Retry(c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(n *corev1.Node) { n.Annotations = annotations })
	}
	for _, name := range []string{"old", "new", "foreign"} {
		controllertest.Node(c, name, nil)
	}
	mark("old", map[string]string{auth.NodeKeysAnnotation: "k"})
	mark("new", map[string]string{auth.NodeKeysAnnotation: "k", auth.NodeAccountAnnotation: auth.NodeAccount})
	c.Run(Account)
	bound := func() error {
		_, err := client.Get[*rbacv1.ClusterRoleBinding](t.Context(), c.Client, "", rbac.RetiredNodeRole)
		return err
	}
	account := func() string {
		if _, err := client.Get[*corev1.ServiceAccount](t.Context(), c.Client, "kube-system", auth.NodeAccount); err != nil {
			return err.Error()
		}
		return ""
	}
	c.Eventually("the account exists", account)
	if err := client.Delete[*corev1.ServiceAccount](t.Context(), c.Client, "kube-system", auth.NodeAccount, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("a deleted account comes back", account)
	if err := bound(); err != nil {
		t.Errorf("an old node lost its rights: %v", err)
	}
	mark("old", map[string]string{auth.NodeKeysAnnotation: "k", auth.NodeAccountAnnotation: auth.NodeAccount})
	c.Eventually("the binding is gone", func() string {
		if err := bound(); !apierrors.IsNotFound(err) {
			return "it is there"
		}
		return ""
	})
	if _, err := client.Get[*rbacv1.RoleBinding](t.Context(), c.Client, "kube-system", rbac.RetiredNodeRole); !apierrors.IsNotFound(err) {
		t.Errorf("the binding in kube-system: %v", err)
	}
	if _, err := client.Get[*rbacv1.ClusterRole](t.Context(), c.Client, "", rbac.RetiredNodeRole); !apierrors.IsNotFound(err) {
		t.Errorf("the role: %v", err)
	}
}
