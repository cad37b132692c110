package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/kubelet/credentials"
)

// addCredentialPlugins lets plugins give the credentials of images.
func (k *Kubelet) addCredentialPlugins() error {
	switch {
	case k.CredentialConfig == "" && k.CredentialDir == "":
		return nil
	case k.CredentialConfig == "" || k.CredentialDir == "":
		return errors.New("image-credential-provider-config and image-credential-provider-bin-dir: one without the other is not usable: give both")
	}
	plugins, err := credentials.New(credentials.Config{
		File: k.CredentialConfig, BinDir: k.CredentialDir, Now: k.Now, Log: k.log, Token: k.accountToken,
		Account: func(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
			return client.Get[*corev1.ServiceAccount](ctx, k.Client, namespace, name)
		},
	})
	if err != nil {
		return err
	}
	k.images.Plugins = plugins.Credentials
	k.metrics.Add(plugins.Collectors()...)
	return nil
}

// accountToken requests a token of a service account for a pod and one audience. It lasts an hour
// unless the API server decides otherwise.
func (k *Kubelet) accountToken(ctx context.Context, pod *corev1.Pod, account *corev1.ServiceAccount, audience string) (string, time.Time, error) {
	made, err := k.Client.CreateSub(ctx, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), account.Namespace, account.Name, "token", &authenticationv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{UID: account.UID},
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:      []string{audience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("request a token for audience %q: %w", audience, err)
	}
	r, ok := made.(*authenticationv1.TokenRequest)
	if !ok {
		return "", time.Time{}, fmt.Errorf("request a token: the API answered with a %T", made)
	}
	return r.Status.Token, r.Status.ExpirationTimestamp.Time, nil
}
