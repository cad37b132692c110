package images

import (
	"fmt"
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

func TestPoliciesExemptImages(t *testing.T) {
	const listed, foreign = "registry.example.com/team/app:v1", "registry.example.com/shop/app:v1"
	list := []string{"registry.example.com/team/*", "docker.io/library/busybox"}
	for _, test := range []struct {
		verify        kubeletconfig.ImagePullCredentialsVerificationPolicy
		image         string
		loaded, byPod bool // exempt if it was loaded by other means, or pulled for a pod
	}{
		{"", foreign, true, false},
		{kubeletconfig.NeverVerify, foreign, true, true},
		{kubeletconfig.NeverVerifyPreloadedImages, foreign, true, false},
		{kubeletconfig.NeverVerifyAllowlistedImages, foreign, false, false},
		{kubeletconfig.NeverVerifyAllowlistedImages, listed, true, false},
		{kubeletconfig.NeverVerifyAllowlistedImages, "busybox:1.36", true, false},
		{kubeletconfig.NeverVerifyAllowlistedImages, "busybox", true, false},
		{kubeletconfig.NeverVerifyAllowlistedImages, "busybox-fake", false, false},
		{kubeletconfig.NeverVerifyAllowlistedImages, "registry.example.com/teams/app", false, false},
		{kubeletconfig.AlwaysVerify, listed, false, false},
	} {
		p := Policy{Verify: test.verify, Allowlist: list}
		if got := p.exempt(test.image, false); got != test.loaded {
			t.Errorf("%s: a loaded %s is exempt: %v", test.verify, test.image, got)
		}
		if got := p.exempt(test.image, true); got != test.byPod {
			t.Errorf("%s: a pulled %s is exempt: %v", test.verify, test.image, got)
		}
	}
}

func TestARepositoryIsAnImageNameWithoutTagAndDigest(t *testing.T) {
	for image, want := range map[string]string{
		"nginx": "nginx", "nginx:1": "nginx", "host:5000/a/b": "host:5000/a/b", "host:5000/a/b:v1": "host:5000/a/b",
		"host/a:v1@sha256:00": "host/a", "host:5000/a@sha256:00": "host:5000/a",
	} {
		if got := repository(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func TestSecretsInARecordAreBounded(t *testing.T) {
	var c kubeletconfig.ImagePullCredentials
	for i := range maxSecrets + 5 {
		c = merge(c, source{secret: &kubeletconfig.ImagePullSecret{UID: fmt.Sprint(i)}})
	}
	if len(c.KubernetesSecrets) != maxSecrets || c.KubernetesSecrets[0].UID != "5" {
		t.Errorf("%d secrets, the oldest is %s", len(c.KubernetesSecrets), c.KubernetesSecrets[0].UID)
	}
	if c = merge(c, source{}); !c.NodePodsAccessible || c.KubernetesSecrets != nil {
		t.Errorf("an image that needs no credentials keeps secrets: %v", c)
	}
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"ImagePullIntent","image":"a"}`))
	f.Add([]byte(`{"apiVersion":"kubelet.config.k8s.io/v1alpha1","kind":"ImagePulledRecord","imageRef":"a","credentialMapping":{"a":{"nodePodsAccessible":true}}}`))
	f.Add([]byte(`{"kind":null,"credentialMapping":{"":{}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		name := fileName("a")
		if i, err := parseIntent(name, data); err == nil && i.Image != "a" {
			t.Errorf("an intent of another image: %q", i.Image)
		}
		if r, err := parsePulled(name, data); err == nil && r.ImageRef != "a" {
			t.Errorf("a record of another image: %q", r.ImageRef)
		}
	})
}
