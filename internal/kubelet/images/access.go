package images

import (
	"strings"

	"github.com/distribution/reference"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Policy selects the present images whose use needs a check of the pod's credentials (KEP-2535).
type Policy struct {
	// Verify is imagePullCredentialsVerificationPolicy; empty means NeverVerifyPreloadedImages.
	Verify kubeletconfig.ImagePullCredentialsVerificationPolicy
	// Allowlist is preloadedImagesVerificationAllowlist.
	Allowlist []string
}

// exempt reports whether each pod may use the image. pulled means that the kubelet pulled it.
func (p Policy) exempt(image string, pulled bool) bool {
	switch p.Verify {
	case kubeletconfig.NeverVerify:
		return true
	case kubeletconfig.AlwaysVerify:
		return false
	case kubeletconfig.NeverVerifyAllowlistedImages:
		return !pulled && p.lists(image)
	}
	return !pulled
}

// lists reports whether the allowlist has the image's repository, as written or in full.
func (p Policy) lists(image string) bool {
	names := []string{repository(image)}
	if named, err := reference.ParseNormalizedNamed(image); err == nil {
		names = append(names, named.Name())
	}
	for _, pattern := range p.Allowlist {
		for _, name := range names {
			prefix, wild := strings.CutSuffix(pattern, "*")
			if name == pattern || wild && strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return false
}

// repository is the image name of a container without its tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		image = image[:i]
	}
	return image
}

// maxSecrets bounds the secrets in a record, for one repository. A pull then replaces the oldest.
const maxSecrets = 100

// covers reports whether a pod with these credentials may use an image without asking its registry.
// A recorded secret covers it even with new content, as upstream documents; that content is not
// proven, so it is not recorded. Recorded content also covers it in another secret, which is then
// returned as another.
func covers(recorded kubeletconfig.ImagePullCredentials, of []credential) (ok bool, another *kubeletconfig.ImagePullSecret) {
	for _, c := range of {
		for _, s := range recorded.KubernetesSecrets {
			switch {
			case sameObject(s, c.secret):
				return true, nil
			case s.CredentialHash != "" && s.CredentialHash == c.secret.CredentialHash:
				ok, another = true, &c.secret
			}
		}
	}
	return ok, another
}

func sameObject(a, b kubeletconfig.ImagePullSecret) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}

// merge adds the secret that opened a registry. No secret means that no credentials were needed.
func merge(old kubeletconfig.ImagePullCredentials, secret *kubeletconfig.ImagePullSecret) kubeletconfig.ImagePullCredentials {
	if old.NodePodsAccessible || secret == nil {
		return kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}
	}
	out := kubeletconfig.ImagePullCredentials{KubernetesServiceAccounts: old.KubernetesServiceAccounts}
	for _, s := range old.KubernetesSecrets {
		if !sameObject(s, *secret) {
			out.KubernetesSecrets = append(out.KubernetesSecrets, s)
		}
	}
	if over := len(out.KubernetesSecrets) + 1 - maxSecrets; over > 0 {
		out.KubernetesSecrets = out.KubernetesSecrets[over:]
	}
	out.KubernetesSecrets = append(out.KubernetesSecrets, *secret)
	return out
}
