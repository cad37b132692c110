package spec

import (
	"context"
	"fmt"
	"net"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sources reads the API objects that container environments use.
type Sources interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services lists the services of a namespace.
	Services(namespace string) []*corev1.Service
}

// Facts are values of the pod and node that the environment can refer to.
type Facts struct {
	PodIPs      []string
	HostIPs     []string
	Allocatable corev1.ResourceList
	// VolumePaths maps volume names to paths on the host, for environment files.
	VolumePaths map[string]string
}

// Env builds a container's environment in Kubernetes' order of precedence: services, envFrom, env.
func Env(ctx context.Context, pod *corev1.Pod, c *corev1.Container, src Sources, facts Facts) ([]*runtimeapi.KeyValue, map[string]string, error) {
	services := serviceEnv(pod, src)
	result := map[string]string{}
	configMaps, secrets := map[string]*corev1.ConfigMap{}, map[string]*corev1.Secret{}
	for _, from := range c.EnvFrom {
		if err := envFrom(ctx, pod, from, src, configMaps, secrets, result); err != nil {
			return nil, nil, err
		}
	}
	for _, e := range c.Env {
		value := e.Value
		switch {
		case value != "":
			value = Expand(value, func(name string) (string, bool) {
				if v, ok := result[name]; ok {
					return v, true
				}
				v, ok := services[name]
				return v, ok
			})
		case e.ValueFrom != nil:
			v, ok, err := valueFrom(ctx, pod, c, e.ValueFrom, src, configMaps, secrets, facts)
			if err != nil {
				return nil, nil, err
			}
			if !ok {
				continue
			}
			value = v
		}
		result[e.Name] = value
	}
	for k, v := range services {
		if _, ok := result[k]; !ok {
			result[k] = v
		}
	}
	names := make([]string, 0, len(result))
	for k := range result {
		names = append(names, k)
	}
	sort.Strings(names)
	envs := make([]*runtimeapi.KeyValue, 0, len(names))
	for _, k := range names {
		envs = append(envs, &runtimeapi.KeyValue{Key: k, Value: []byte(result[k])})
	}
	return envs, result, nil
}

func envFrom(ctx context.Context, pod *corev1.Pod, from corev1.EnvFromSource, src Sources, configMaps map[string]*corev1.ConfigMap,
	secrets map[string]*corev1.Secret, result map[string]string) error {
	put := func(k, v string) {
		k = from.Prefix + k
		if len(validation.IsRelaxedEnvVarName(k)) == 0 {
			result[k] = v
		}
	}
	switch {
	case from.ConfigMapRef != nil:
		optional := from.ConfigMapRef.Optional != nil && *from.ConfigMapRef.Optional
		cm, err := configMap(ctx, pod.Namespace, from.ConfigMapRef.Name, src, configMaps)
		if err != nil {
			if apierrors.IsNotFound(err) && optional {
				return nil
			}
			return described(err, "configmap", from.ConfigMapRef.Name)
		}
		for k, v := range cm.Data {
			put(k, v)
		}
	case from.SecretRef != nil:
		optional := from.SecretRef.Optional != nil && *from.SecretRef.Optional
		s, err := secret(ctx, pod.Namespace, from.SecretRef.Name, src, secrets)
		if err != nil {
			if apierrors.IsNotFound(err) && optional {
				return nil
			}
			return described(err, "secret", from.SecretRef.Name)
		}
		for k, v := range s.Data {
			put(k, string(v))
		}
	}
	return nil
}

func valueFrom(ctx context.Context, pod *corev1.Pod, c *corev1.Container, from *corev1.EnvVarSource, src Sources,
	configMaps map[string]*corev1.ConfigMap, secrets map[string]*corev1.Secret, facts Facts) (string, bool, error) {
	switch {
	case from.FieldRef != nil:
		v, err := FieldValue(pod, from.FieldRef.FieldPath, facts)
		return v, err == nil, err
	case from.ResourceFieldRef != nil:
		v, err := ResourceValue(pod, c, from.ResourceFieldRef, facts.Allocatable)
		return v, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		optional := ref.Optional != nil && *ref.Optional
		cm, err := configMap(ctx, pod.Namespace, ref.Name, src, configMaps)
		if err != nil {
			if apierrors.IsNotFound(err) && optional {
				return "", false, nil
			}
			return "", false, described(err, "configmap", ref.Name)
		}
		v, ok := cm.Data[ref.Key]
		if !ok && !optional {
			return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, pod.Namespace, ref.Name)
		}
		return v, ok, nil
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		optional := ref.Optional != nil && *ref.Optional
		s, err := secret(ctx, pod.Namespace, ref.Name, src, secrets)
		if err != nil {
			if apierrors.IsNotFound(err) && optional {
				return "", false, nil
			}
			return "", false, described(err, "secret", ref.Name)
		}
		v, ok := s.Data[ref.Key]
		if !ok && !optional {
			return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, pod.Namespace, ref.Name)
		}
		return string(v), ok, nil
	case from.FileKeyRef != nil:
		return fileValue(from.FileKeyRef, facts.VolumePaths)
	}
	return "", false, nil
}

// described replaces the error of a missing object by upstream's text.
func described(err error, kind, name string) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s %q not found", kind, name)
	}
	return fmt.Errorf("%s %q: %w", kind, name, err)
}

func configMap(ctx context.Context, namespace, name string, src Sources, seen map[string]*corev1.ConfigMap) (*corev1.ConfigMap, error) {
	if cm, ok := seen[name]; ok {
		return cm, nil
	}
	cm, err := src.ConfigMap(ctx, namespace, name)
	if err == nil {
		seen[name] = cm
	}
	return cm, err
}

func secret(ctx context.Context, namespace, name string, src Sources, seen map[string]*corev1.Secret) (*corev1.Secret, error) {
	if s, ok := seen[name]; ok {
		return s, nil
	}
	s, err := src.Secret(ctx, namespace, name)
	if err == nil {
		seen[name] = s
	}
	return s, err
}

// serviceEnv builds the variables that describe services. The API server's service is always
// included. The services of the pod's namespace are included if enableServiceLinks is set.
func serviceEnv(pod *corev1.Pod, src Sources) map[string]string {
	byName := map[string]*corev1.Service{}
	add := func(s *corev1.Service) {
		if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
			byName[s.Name] = s
		}
	}
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	for _, s := range src.Services(metav1NamespaceDefault) {
		if s.Name == "kubernetes" {
			add(s)
		}
	}
	if links {
		for _, s := range src.Services(pod.Namespace) {
			add(s)
		}
	}
	env := map[string]string{}
	for _, s := range byName {
		if len(s.Spec.Ports) == 0 {
			continue
		}
		name := envName(s.Name)
		ip := s.Spec.ClusterIP
		env[name+"_SERVICE_HOST"] = ip
		env[name+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
		for i, p := range s.Spec.Ports {
			if p.Name != "" {
				env[name+"_SERVICE_PORT_"+envName(p.Name)] = strconv.Itoa(int(p.Port))
			}
			protocol := string(p.Protocol)
			if protocol == "" {
				protocol = "TCP"
			}
			url := fmt.Sprintf("%s://%s", strings.ToLower(protocol), net.JoinHostPort(ip, strconv.Itoa(int(p.Port))))
			if i == 0 {
				env[name+"_PORT"] = url
			}
			prefix := fmt.Sprintf("%s_PORT_%d_%s", name, p.Port, strings.ToUpper(protocol))
			env[prefix] = url
			env[prefix+"_PROTO"] = strings.ToLower(protocol)
			env[prefix+"_PORT"] = strconv.Itoa(int(p.Port))
			env[prefix+"_ADDR"] = ip
		}
	}
	return env
}

const metav1NamespaceDefault = "default"

func envName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }
