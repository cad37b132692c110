package admission

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	references "github.com/knarr-project/knarr/internal/auth/node"
	"github.com/knarr-project/knarr/internal/client"
)

const (
	defaultServiceAccount = "default"
	tokenVolumePrefix     = "kube-api-access-"
	tokenMountPath        = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenSeconds is an hour and seven seconds: the odd number tells the token issuer that this
	// plugin requested the token.
	tokenSeconds     = int64(3607)
	rootCAConfigMap  = "kube-root-ca.crt"
	enforceMountable = "kubernetes.io/enforce-mountable-secrets"

	// accountWait is how long a pod's creation waits for the default account of a new namespace.
	accountWait  = time.Second
	accountRetry = 50 * time.Millisecond
)

// serviceAccount sets the account of each pod and mounts a volume with the account's token, the CA
// and the namespace.
type serviceAccount struct {
	base
	accounts *client.Lazy[*corev1.ServiceAccount]
	suffix   func(n int) string
}

func newServiceAccount(accounts *client.Lazy[*corev1.ServiceAccount], suffix func(n int) string) Plugin {
	return serviceAccount{base{"ServiceAccount", []Operation{Create, Update}}, accounts, suffix}
}

// Admit implements Mutator.
func (p serviceAccount) Admit(ctx context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok || a.Operation != Create {
		return nil
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return a.mirrorPod(pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultServiceAccount
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	account, err := p.find(ctx, a.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return a.forbid(fmt.Errorf("error looking up service account %s/%s: %w", a.Namespace, pod.Spec.ServiceAccountName, err))
	}
	if mountsToken(account, pod) {
		p.mountToken(pod)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	return nil
}

// Validate implements Validator.
func (p serviceAccount) Validate(ctx context.Context, a *Attributes) error {
	if a.is("", "pods", "ephemeralcontainers") && a.Operation == Update {
		return p.limitSecrets(ctx, a)
	}
	pod, ok := a.pod()
	if !ok || a.Operation != Create {
		return nil
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return a.mirrorPod(pod)
	}
	return p.limitSecrets(ctx, a)
}

// mirrorPod refuses references to accounts and secrets in mirror pods. A node creates them for its
// static pods, so they must not give it another's rights.
func (a *Attributes) mirrorPod(pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return a.forbid(errors.New("a mirror pod may not reference service accounts"))
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken != nil {
				return a.forbid(errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
			}
		}
	}
	if len(references.SecretsOf(pod)) > 0 {
		return a.forbid(errors.New("a mirror pod may not reference secrets"))
	}
	return nil
}

// find waits a moment for the default account, which the service account controller creates after
// the namespace.
func (p serviceAccount) find(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	account, err := p.accounts.Find(ctx, namespace, name)
	if !apierrors.IsNotFound(err) {
		return account, err
	}
	if name == defaultServiceAccount {
		ctx, cancel := context.WithTimeout(ctx, accountWait)
		defer cancel()
		ticker := time.NewTicker(accountRetry)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil, apierrors.NewNotFound(corev1.Resource("serviceaccount"), name)
			case <-ticker.C:
			}
			if account, err := p.accounts.Find(ctx, namespace, name); err == nil {
				return account, nil
			}
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("serviceaccount"), name)
}

// mountsToken reports whether to mount a token: the pod's field decides, then the account's; the
// default is yes.
func mountsToken(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	if pod.Spec.AutomountServiceAccountToken != nil {
		return *pod.Spec.AutomountServiceAccountToken
	}
	return account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken
}

// mountToken mounts the token into every container whose token path is free.
func (p serviceAccount) mountToken(pod *corev1.Pod) {
	name, exists := "", false
	taken := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		taken[v.Name] = true
		if strings.HasPrefix(v.Name, tokenVolumePrefix) {
			name, exists = v.Name, true
			break
		}
	}
	for name == "" || !exists && taken[name] {
		name = tokenVolumePrefix + p.suffix(5)
	}
	mount := corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenMountPath}
	needed := false
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenMountPath }) {
				c.VolumeMounts = append(c.VolumeMounts, mount)
				needed = true
			}
		}
	}
	if needed && !exists {
		pod.Spec.Volumes = append(pod.Spec.Volumes, tokenVolume(name))
	}
}

func tokenVolume(name string) corev1.Volume {
	seconds, mode := tokenSeconds, int32(corev1.ProjectedVolumeSourceDefaultMode)
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: &mode,
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: rootCAConfigMap},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}}}
}

// limitSecrets refuses Secrets that the account does not list, if the account restricts its pods to
// its list.
func (p serviceAccount) limitSecrets(ctx context.Context, a *Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	name := pod.Spec.ServiceAccountName
	if name == "" {
		name = defaultServiceAccount
	}
	account, err := p.find(ctx, a.Namespace, name)
	if err != nil {
		return a.forbid(fmt.Errorf("error looking up service account %s/%s: %w", a.Namespace, name, err))
	}
	if enforce, _ := strconv.ParseBool(account.Annotations[enforceMountable]); !enforce {
		return nil
	}
	mountable := map[string]bool{}
	for _, s := range account.Secrets {
		mountable[s.Name] = true
	}
	for where, secret := range secretsOf(&pod.Spec) {
		if !mountable[secret] {
			return a.forbid(fmt.Errorf(`%s secret.secretName="%s" is not allowed because service account %s does not reference that secret`, where, secret, account.Name))
		}
	}
	pulled := map[string]bool{}
	for _, s := range account.ImagePullSecrets {
		pulled[s.Name] = true
	}
	for i, s := range pod.Spec.ImagePullSecrets {
		if !pulled[s.Name] {
			return a.forbid(fmt.Errorf(`imagePullSecrets[%d].name="%s" is not allowed because service account %s does not reference that imagePullSecret`, i, s.Name, account.Name))
		}
	}
	return nil
}

// secretsOf yields the Secrets that an account can restrict, with upstream's description of the
// place.
func secretsOf(spec *corev1.PodSpec) iter.Seq2[string, string] {
	return func(yield func(where, secret string) bool) {
		for _, v := range spec.Volumes {
			if v.Secret != nil && !yield("volume with", v.Secret.SecretName) {
				return
			}
			if v.Projected == nil {
				continue
			}
			for _, s := range v.Projected.Sources {
				if s.Secret != nil && !yield("volume with", s.Secret.Name) {
					return
				}
			}
		}
		for _, c := range spec.InitContainers {
			if !environmentSecrets("init container "+c.Name, c.Env, c.EnvFrom, yield) {
				return
			}
		}
		for _, c := range spec.Containers {
			if !environmentSecrets("container "+c.Name, c.Env, c.EnvFrom, yield) {
				return
			}
		}
		for _, c := range spec.EphemeralContainers {
			if !environmentSecrets("ephemeral container "+c.Name, c.Env, c.EnvFrom, yield) {
				return
			}
		}
	}
}

func environmentSecrets(container string, vars []corev1.EnvVar, from []corev1.EnvFromSource, yield func(where, secret string) bool) bool {
	for _, e := range vars {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !yield(fmt.Sprintf("%s with envVar %s referencing", container, e.Name), e.ValueFrom.SecretKeyRef.Name) {
			return false
		}
	}
	for _, f := range from {
		if f.SecretRef != nil && !yield(container+" with envFrom referencing", f.SecretRef.Name) {
			return false
		}
	}
	return true
}
