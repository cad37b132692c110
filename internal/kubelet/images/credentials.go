package images

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"sort"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// credential is one entry of a Docker configuration, or of a plugin's answer.
type credential struct {
	registry string // host[:port][/path]; host labels may contain *
	auth     *runtimeapi.AuthConfig
	source   source
}

// source is where credentials come from: a secret, a service account for which a plugin was asked,
// or the node itself if both are nil.
type source struct {
	secret  *kubeletconfig.ImagePullSecret
	account *kubeletconfig.ImagePullServiceAccount
}

type dockerEntry struct {
	Username, Password, Auth, IdentityToken, RegistryToken string
}

// credentialsOf reads a Secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg.
func credentialsOf(s *corev1.Secret) ([]credential, error) {
	entries := map[string]dockerEntry{}
	switch s.Type {
	case corev1.SecretTypeDockerConfigJson:
		var config struct{ Auths map[string]dockerEntry }
		if err := json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &config); err != nil {
			return nil, fmt.Errorf("secret %s/%s: %w", s.Namespace, s.Name, err)
		}
		entries = config.Auths
	case corev1.SecretTypeDockercfg:
		if err := json.Unmarshal(s.Data[corev1.DockerConfigKey], &entries); err != nil {
			return nil, fmt.Errorf("secret %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	var out []credential
	for registry, e := range entries {
		if e.Auth != "" {
			raw, err := base64.StdEncoding.DecodeString(e.Auth)
			if err != nil {
				return nil, fmt.Errorf("secret %s/%s: registry %s: auth: %w", s.Namespace, s.Name, registry, err)
			}
			e.Username, e.Password, _ = strings.Cut(string(raw), ":")
		}
		auth := &runtimeapi.AuthConfig{Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken, RegistryToken: e.RegistryToken}
		out = append(out, credential{trimRegistry(registry), auth, source{secret: &kubeletconfig.ImagePullSecret{
			UID: string(s.UID), Namespace: s.Namespace, Name: s.Name, CredentialHash: hashOf(auth),
		}}})
	}
	return out, nil
}

// hashOf identifies the content of credentials in records.
func hashOf(a *runtimeapi.AuthConfig) string {
	// Strings separated by their JSON quotes cannot be mistaken for each other.
	data, err := json.Marshal([]string{a.Username, a.Password, a.Auth, a.ServerAddress, a.IdentityToken, a.RegistryToken})
	if err != nil {
		return "" // covers nothing
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// trimRegistry reduces https://index.docker.io/v1/ to docker.io.
func trimRegistry(r string) string {
	if !strings.Contains(r, "://") {
		r = "https://" + r
	}
	u, err := url.Parse(r)
	if err != nil {
		return r
	}
	p := strings.Trim(u.Path, "/")
	if p == "v1" || p == "v2" {
		p = ""
	}
	host := u.Host
	if host == "index.docker.io" {
		host = "docker.io"
	}
	return strings.TrimSuffix(host+"/"+p, "/")
}

// fit returns the credentials that match the image, those with the longest path first.
func fit(creds []credential, image string) []credential {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil
	}
	var fitting []credential
	for _, c := range creds {
		host, prefix, _ := strings.Cut(c.registry, "/")
		if !hostMatches(host, reference.Domain(named)) {
			continue
		}
		if prefix == "" || strings.HasPrefix(reference.Path(named), prefix) {
			fitting = append(fitting, c)
		}
	}
	sort.SliceStable(fitting, func(i, j int) bool { return len(fitting[i].registry) > len(fitting[j].registry) })
	return fitting
}

func hostMatches(pattern, host string) bool {
	p, h := strings.Split(pattern, "."), strings.Split(host, ".")
	if len(p) != len(h) {
		return false
	}
	for i := range p {
		if ok, err := path.Match(p[i], h[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
