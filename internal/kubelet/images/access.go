package images

import (
	"slices"
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

// maxSecrets bounds the secrets in a record, for one repository, and also its service accounts. A
// pull then replaces the oldest.
const maxSecrets = 100

// covers reports whether a pod with these credentials may use an image without asking its registry.
// A recorded secret covers it even with new content, as upstream documents; that content is not
// proven, so it is not recorded. Recorded content also covers it in another secret, which is then
// returned as another.
func covers(recorded kubeletconfig.ImagePullCredentials, of []credential) (ok bool, another *kubeletconfig.ImagePullSecret) {
	for _, c := range of {
		if a := c.source.account; a != nil && slices.Contains(recorded.KubernetesServiceAccounts, *a) {
			return true, nil
		}
		if c.source.secret == nil {
			continue
		}
		for _, s := range recorded.KubernetesSecrets {
			switch {
			case sameObject(s, *c.source.secret):
				return true, nil
			case s.CredentialHash != "" && s.CredentialHash == c.source.secret.CredentialHash:
				ok, another = true, c.source.secret
			}
		}
	}
	return ok, another
}

func sameObject(a, b kubeletconfig.ImagePullSecret) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}

// merge adds the source of the credentials that opened a registry. The node itself means that all
// its pods may use the image.
func merge(old kubeletconfig.ImagePullCredentials, from source) kubeletconfig.ImagePullCredentials {
	if old.NodePodsAccessible || from.secret == nil && from.account == nil {
		return kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}
	}
	out := kubeletconfig.ImagePullCredentials{KubernetesSecrets: old.KubernetesSecrets, KubernetesServiceAccounts: old.KubernetesServiceAccounts}
	if secret := from.secret; secret != nil {
		out.KubernetesSecrets = last(old.KubernetesSecrets, *secret, func(s kubeletconfig.ImagePullSecret) bool { return sameObject(s, *secret) })
	}
	if account := from.account; account != nil {
		out.KubernetesServiceAccounts = last(old.KubernetesServiceAccounts, *account, func(a kubeletconfig.ImagePullServiceAccount) bool { return a == *account })
	}
	return out
}

// last appends one to the list. It removes the elements that one replaces, and then the oldest ones
// until at most maxSecrets are left.
func last[T any](list []T, one T, replaces func(T) bool) []T {
	out := slices.DeleteFunc(slices.Clone(list), replaces)
	if over := len(out) + 1 - maxSecrets; over > 0 {
		out = out[over:]
	}
	return append(out, one)
}
