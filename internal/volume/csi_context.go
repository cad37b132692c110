package volume

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// tokensKey is the key of the tokens of the pod's service account.
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

func (v *csiVolume) inlineSecret() *corev1.LocalObjectReference {
	for i := range v.pod.Spec.Volumes {
		if volume := &v.pod.Spec.Volumes[i]; volume.Name == v.data.SpecVolID && volume.CSI != nil {
			return volume.CSI.NodePublishSecretRef
		}
	}
	return nil
}

// csiAttributes returns the volume's attributes and what the CSIDriver object requests in addition:
// pod information, and the tokens of the pod's service account as JSON.
func (m *Manager) csiAttributes(ctx context.Context, v *csiVolume) (attributes map[string]string, encoded string, err error) {
	attributes = map[string]string{}
	maps.Copy(attributes, v.attributes)
	if v.object == nil {
		return attributes, "", nil
	}
	if wanted := v.object.Spec.PodInfoOnMount; wanted != nil && *wanted {
		account := v.pod.Spec.ServiceAccountName
		if account == "" {
			account = "default"
		}
		maps.Copy(attributes, map[string]string{
			"csi.storage.k8s.io/pod.name": v.pod.Name, "csi.storage.k8s.io/pod.namespace": v.pod.Namespace, "csi.storage.k8s.io/pod.uid": string(v.pod.UID),
			"csi.storage.k8s.io/serviceAccount.name": account, "csi.storage.k8s.io/ephemeral": fmt.Sprint(v.persistent == nil),
		})
	}
	if len(v.object.Spec.TokenRequests) == 0 {
		return attributes, "", nil
	}
	type issued struct {
		Token string `json:"token"`
	}
	tokens := map[string]issued{}
	for _, request := range v.object.Spec.TokenRequests {
		var audiences []string
		if request.Audience != "" {
			audiences = []string{request.Audience}
		}
		seconds := int64(3600)
		if request.ExpirationSeconds != nil {
			seconds = *request.ExpirationSeconds
		}
		value, err := m.tokens.get(ctx, v.pod, audiences, seconds)
		if err != nil {
			return nil, "", err
		}
		tokens[request.Audience] = issued{Token: value}
	}
	content, err := json.Marshal(tokens)
	return attributes, string(content), err
}

func (m *Manager) csiSecrets(ctx context.Context, reference *corev1.SecretReference) (map[string]string, error) {
	if reference == nil {
		return nil, nil
	}
	secret, err := client.Get[*corev1.Secret](ctx, m.Client, reference.Namespace, reference.Name)
	if err != nil {
		return nil, fmt.Errorf("CSI secret %s/%s: %w", reference.Namespace, reference.Name, err)
	}
	values := map[string]string{}
	for key, value := range secret.Data {
		values[key] = string(value)
	}
	return values, nil
}
