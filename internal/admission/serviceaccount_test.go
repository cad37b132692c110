package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
)

// The texts are upstream's. Only knarr counts projected volumes.
func TestAccountsCanLimitTheSecretsOfTheirPods(t *testing.T) {
	reference := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	variable := func(secret string) corev1.EnvVar {
		return corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: reference(secret), Key: "k"}}}
	}
	from := []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: reference("no")}}}
	const refused = `secret.secretName="no" is not allowed because service account strict does not reference that secret`
	cases := []struct {
		name   string
		change func(*corev1.PodSpec)
		want   string
	}{
		{"no Secret", func(*corev1.PodSpec) {}, ""},
		{"a Secret that the account lists", func(s *corev1.PodSpec) { s.Containers[0].Env = []corev1.EnvVar{variable("mine")} }, ""},
		{"a volume", func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "no"}}}}
		}, "volume with " + refused},
		{"a projected volume", func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: reference("no")}}}}}}}
		}, "volume with " + refused},
		{"a variable, before envFrom", func(s *corev1.PodSpec) {
			s.Containers[0].Env, s.Containers[0].EnvFrom = []corev1.EnvVar{variable("mine"), variable("no")}, from
		}, "container c with envVar A referencing " + refused},
		{"envFrom", func(s *corev1.PodSpec) { s.Containers[0].EnvFrom = from }, "container c with envFrom referencing " + refused},
		{"an init container, before main containers", func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "i", Image: "i", EnvFrom: from}}
			s.Containers[0].EnvFrom = from
		}, "init container i with envFrom referencing " + refused},
		{"an ephemeral container", func(s *corev1.PodSpec) {
			s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "i", Env: []corev1.EnvVar{variable("no")}}}}
		}, "ephemeral container e with envVar A referencing " + refused},
		{"an image pull Secret", func(s *corev1.PodSpec) {
			s.ImagePullSecrets = []corev1.LocalObjectReference{reference("pull"), reference("no")}
		},
			`imagePullSecrets[1].name="no" is not allowed because service account strict does not reference that imagePullSecret`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pod := newPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "strict"; c.change(&p.Spec) })
			err := run(t, Attributes{Object: pod}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "strict", Annotations: map[string]string{enforceMountable: "true"}},
				Secrets: []corev1.ObjectReference{{Name: "mine"}}, ImagePullSecrets: []corev1.LocalObjectReference{reference("pull")}})
			if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != `pods "p" is forbidden: `+c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}

func TestMirrorPodsCannotReferenceSecrets(t *testing.T) {
	pod := newPod(func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "a"}
		p.Spec.NodeName, p.Spec.ImagePullSecrets = "n", []corev1.LocalObjectReference{{Name: "pull"}}
	})
	if err := run(t, Attributes{Object: pod}); err == nil || err.Error() != `pods "p" is forbidden: a mirror pod may not reference secrets` {
		t.Errorf("a Secret to pull with: %v", err)
	}
	volumes := map[string]corev1.VolumeSource{
		"a CSI volume":        {CSI: &corev1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: &corev1.LocalObjectReference{Name: "s"}}},
		"an Azure file share": {AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s", ShareName: "a"}},
	}
	for name, source := range volumes {
		pod := newPod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
			p.Spec.NodeName, p.Spec.Volumes = "n", []corev1.Volume{{Name: "v", VolumeSource: source}}
		})
		err := run(t, Attributes{Object: pod})
		if err == nil || err.Error() != `pods "p" is forbidden: a mirror pod may not reference secrets` {
			t.Errorf("%s Secret: %v", name, err)
		}
		// NodeRestriction refuses the pod too, in case ServiceAccount is off.
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u", Controller: new(true)}}
		nodes := clienttest.NewMemory(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}})
		p := nodeRestriction{nodes: client.NewLazy[*corev1.Node](t.Context(), nodes, nil)}
		if err := p.mirrorPod(t.Context(), "n", &Attributes{Object: pod}); err == nil || err.Error() != `node "n" can not create pods that reference secrets` {
			t.Errorf("%s Secret, of a node: %v", name, err)
		}
	}
}
