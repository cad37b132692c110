package admission

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

func TestNodesGetTokensForAudiencesOfTheirPods(t *testing.T) {
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u"}
	}
	claim := func(name, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: meta("ns", name), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	volume := func(name string, source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: meta("", name), Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}
	}
	driver := func(name string, audiences ...string) *storagev1.CSIDriver {
		d := &storagev1.CSIDriver{ObjectMeta: meta("", name)}
		for _, a := range audiences {
			d.Spec.TokenRequests = append(d.Spec.TokenRequests, storagev1.TokenRequest{Audience: a})
		}
		return d
	}
	cluster := []client.Object{
		claim("bound", "csi"), claim("p-own", "csi"), claim("old", "disk"), claim("local", "path"), claim("waiting", ""), claim("lost", "gone"), claim("strange", "unknown"),
		volume("csi", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "driver"}}),
		volume("disk", corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}}),
		volume("path", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}),
		volume("unknown", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "nobody"}}),
		driver("driver", "vault", ""), driver("pd.csi.storage.gke.io", "gke"), driver("other", "theirs"),
	}
	from := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	token := func(audience string) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience}}}}}
	}
	const missing = ` not found in pod spec volume, system:node:n is not authorized to request tokens for this audience`
	for name, tc := range map[string]struct {
		volumes   []corev1.VolumeSource
		audiences []string
		want      string // empty: the token is issued
	}{
		"the audience of a token volume":              {[]corev1.VolumeSource{token("vault")}, []string{"vault"}, ""},
		"the API server's audience":                   {[]corev1.VolumeSource{token("")}, nil, ""},
		"two audiences":                               {[]corev1.VolumeSource{token("vault")}, []string{"vault", "x"}, "node may only request 0 or 1 audiences"},
		"the audience of a CSI driver":                {[]corev1.VolumeSource{{CSI: &corev1.CSIVolumeSource{Driver: "driver"}}}, []string{"vault"}, ""},
		"the API server's audience, for a CSI driver": {[]corev1.VolumeSource{{CSI: &corev1.CSIVolumeSource{Driver: "driver"}}}, nil, ""},
		"the audience of another driver":              {[]corev1.VolumeSource{{CSI: &corev1.CSIVolumeSource{Driver: "driver"}}}, []string{"theirs"}, `audience "theirs"` + missing},
		"the audience of a claim's driver":            {[]corev1.VolumeSource{from("bound")}, []string{"vault"}, ""},
		"an audience that the claim's driver lacks":   {[]corev1.VolumeSource{from("bound")}, []string{"theirs"}, `audience "theirs"` + missing},
		"the audience of an ephemeral claim's driver": {[]corev1.VolumeSource{{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}}}, []string{"vault"}, ""},
		"the audience of a migrated volume's driver":  {[]corev1.VolumeSource{from("old")}, []string{"gke"}, ""},
		"the audience of an inline migrated volume":   {[]corev1.VolumeSource{{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}}}, []string{"gke"}, ""},
		"a claim without a driver":                    {[]corev1.VolumeSource{from("local")}, []string{"vault"}, `audience "vault"` + missing},
		"an unbound claim":                            {[]corev1.VolumeSource{from("waiting")}, []string{"vault"}, `error validating audience "vault": persistentvolume "" not found`},
		"a claim with a missing volume":               {[]corev1.VolumeSource{from("lost")}, []string{"vault"}, `error validating audience "vault": persistentvolume "gone" not found`},
		"a missing claim":                             {[]corev1.VolumeSource{from("none")}, []string{"vault"}, `error validating audience "vault": persistentvolumeclaim "none" not found`},
		"an unknown driver":                           {[]corev1.VolumeSource{from("strange")}, []string{"vault"}, `error validating audience "vault": csidriver.storage.k8s.io "nobody" not found`},
		"a failed lookup beside a matching volume":    {[]corev1.VolumeSource{from("none"), token("vault")}, []string{"vault"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: meta("ns", "p"), Spec: corev1.PodSpec{NodeName: "n"}}
			for _, source := range tc.volumes {
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "own", VolumeSource: source})
			}
			err := run(t, askForToken("p", tc.audiences), append([]client.Object{pod}, cluster...)...)
			if tc.want == "" && err != nil || tc.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if err := run(t, askForToken("gone", nil)); !apierrors.IsNotFound(err) {
		t.Errorf("for a missing pod: %v", err)
	}
}

// askForToken makes a node's request for a token of one of its pods.
func askForToken(pod string, audiences []string) Attributes {
	return Attributes{
		User:     auth.User{Name: "system:node:n", Groups: []string{"system:nodes"}},
		Resource: corev1.SchemeGroupVersion.WithResource("serviceaccounts"), Kind: authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"), Subresource: "token",
		Namespace: "ns", Name: "default",
		Object: &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod, UID: "u"}}},
	}
}
