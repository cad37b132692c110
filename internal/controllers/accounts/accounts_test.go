package accounts_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/accounts"
)

func TestEveryNamespaceHasAnAccountAndTheCA(t *testing.T) {
	c := controllertest.New(t)
	c.Run(accounts.ServiceAccount, accounts.RootCA)
	has := func() string {
		if _, err := client.Get[*corev1.ServiceAccount](t.Context(), c.Client, "default", "default"); err != nil {
			return err.Error()
		}
		cm, err := client.Get[*corev1.ConfigMap](t.Context(), c.Client, "default", "kube-root-ca.crt")
		if err != nil {
			return err.Error()
		}
		if len(cm.Data) != 1 || cm.Data["ca.crt"] != "CA" {
			return "wrong data"
		}
		return ""
	}
	c.Eventually("both are made", has)
	if err := client.Delete[*corev1.ServiceAccount](t.Context(), c.Client, "default", "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	cm, _ := client.Get[*corev1.ConfigMap](t.Context(), c.Client, "default", "kube-root-ca.crt")
	cm = cm.DeepCopy()
	cm.Data = map[string]string{"ca.crt": "no", "x": "y"}
	if _, err := client.Update(t.Context(), c.Client, cm); err != nil {
		t.Fatal(err)
	}
	c.Eventually("both are restored", has)
}

func TestTokenSecretsAreFilledAndDeletedWithTheirAccount(t *testing.T) {
	c := controllertest.New(t)
	c.Config.LegacyToken = func(a *corev1.ServiceAccount, s *corev1.Secret) (string, error) { return "token of " + a.Name, nil }
	c.Run(accounts.Tokens)
	account := controllertest.Create(c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}})
	controllertest.Create(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}}, Type: corev1.SecretTypeServiceAccountToken})
	c.Eventually("it is filled", func() string {
		s, err := client.Get[*corev1.Secret](t.Context(), c.Client, "default", "s")
		if err != nil {
			return err.Error()
		}
		if string(s.Data["token"]) != "token of robot" || string(s.Data["namespace"]) != "default" || s.Annotations[corev1.ServiceAccountUIDKey] != string(account.UID) {
			return "not filled"
		}
		return ""
	})
	if err := client.Delete[*corev1.ServiceAccount](t.Context(), c.Client, "default", "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("it is deleted", func() string {
		if len(controllertest.List[*corev1.Secret](c)) > 0 {
			return "still there"
		}
		return ""
	})
}
