package accounts_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
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

// TestReplacedTokenIsRemembered signs a Secret's token again, as after a rotation of the key. Then
// the token is cleared, which revokes the one before.
func TestReplacedTokenIsRemembered(t *testing.T) {
	c := controllertest.New(t)
	c.Config.LegacyToken = func(*corev1.ServiceAccount, *corev1.Secret) (string, error) { return "new", nil }
	c.Config.LegacyTokenStale = func(token string) bool { return token == "old" }
	c.Run(accounts.Tokens)
	controllertest.Create(c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}})
	secret := controllertest.Create(c, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
		Type:       corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": []byte("old")},
	})
	signed := func(replaced string) func() string {
		return func() string {
			s, err := client.Get[*corev1.Secret](t.Context(), c.Client, "default", "s")
			switch secret = s; {
			case err != nil:
				return err.Error()
			case string(s.Data["token"]) != "new" || s.Annotations[auth.AnnotationReplacedToken] != replaced:
				return "not signed again"
			}
			return ""
		}
	}
	c.Eventually("the old token is remembered", signed(auth.ReplacedToken([]byte("old"))))
	secret = secret.DeepCopy()
	delete(secret.Data, "token")
	if _, err := client.Update(t.Context(), c.Client, secret); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the old token is forgotten", signed(""))
}
