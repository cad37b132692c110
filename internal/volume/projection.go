package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = corev1.SchemeGroupVersion.WithResource("secrets")
)

// projector collects the content of one pod's projections.
type projector struct {
	*Manager
	pod *corev1.Pod
	// fresh reads objects from the API instead of from Views, because a container must not start
	// with content that is older than its pod.
	fresh bool
}

// isProjection reports whether the volume's content comes from API objects.
func isProjection(source *corev1.VolumeSource) bool {
	return source.ConfigMap != nil || source.Secret != nil || source.DownwardAPI != nil || source.Projected != nil
}

// collect returns the content of a projection volume.
func (p *projector) collect(ctx context.Context, source *corev1.VolumeSource) (payload, error) {
	switch {
	case source.ConfigMap != nil:
		return p.configMap(ctx, source.ConfigMap.Name, source.ConfigMap.Items, mode(source.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode), optional(source.ConfigMap.Optional))
	case source.Secret != nil:
		return p.secret(ctx, source.Secret.SecretName, source.Secret.Items, mode(source.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode), optional(source.Secret.Optional))
	case source.DownwardAPI != nil:
		return p.downwardAPI(source.DownwardAPI.Items, mode(source.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode))
	default:
		return p.projected(ctx, source.Projected)
	}
}

// projected joins all sources; at the same path, a later source wins. It reports all errors
// together.
func (p *projector) projected(ctx context.Context, source *corev1.ProjectedVolumeSource) (payload, error) {
	all := payload{}
	var problems []error
	for i := range source.Sources {
		content, err := p.projectedSource(ctx, &source.Sources[i], mode(source.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode))
		if err != nil {
			problems = append(problems, err)
		}
		for path, file := range content {
			all[path] = file
		}
	}
	return all, errors.Join(problems...)
}

func (p *projector) projectedSource(ctx context.Context, source *corev1.VolumeProjection, defaultMode fs.FileMode) (payload, error) {
	switch {
	case source.Secret != nil:
		return p.secret(ctx, source.Secret.Name, source.Secret.Items, defaultMode, optional(source.Secret.Optional))
	case source.ConfigMap != nil:
		return p.configMap(ctx, source.ConfigMap.Name, source.ConfigMap.Items, defaultMode, optional(source.ConfigMap.Optional))
	case source.DownwardAPI != nil:
		return p.downwardAPI(source.DownwardAPI.Items, defaultMode)
	case source.ServiceAccountToken != nil:
		return p.serviceAccountToken(ctx, source.ServiceAccountToken, defaultMode)
	case source.ClusterTrustBundle != nil:
		return p.clusterTrustBundle(ctx, source.ClusterTrustBundle, defaultMode)
	case source.PodCertificate != nil:
		return nil, errors.New("podCertificate projections are not supported by this node")
	}
	return nil, errors.New("projected volume source is empty")
}

func (p *projector) configMap(ctx context.Context, name string, items []corev1.KeyToPath, defaultMode fs.FileMode, optional bool) (payload, error) {
	object, err := p.object(ctx, objectKey{configMaps, p.pod.Namespace, name}, optional)
	if object == nil || err != nil {
		return nil, err
	}
	configMap, ok := object.(*corev1.ConfigMap)
	if !ok {
		return nil, fmt.Errorf("configmap %q: unexpected %T", name, object)
	}
	data := make(map[string][]byte, len(configMap.Data)+len(configMap.BinaryData))
	for key, text := range configMap.Data {
		data[key] = []byte(text)
	}
	for key, bytes := range configMap.BinaryData {
		data[key] = bytes
	}
	return choose(data, items, defaultMode, optional, "config")
}

func (p *projector) secret(ctx context.Context, name string, items []corev1.KeyToPath, defaultMode fs.FileMode, optional bool) (payload, error) {
	object, err := p.object(ctx, objectKey{secrets, p.pod.Namespace, name}, optional)
	if object == nil || err != nil {
		return nil, err
	}
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("secret %q: unexpected %T", name, object)
	}
	return choose(secret.Data, items, defaultMode, optional, "secret")
}

// object reads an object and follows it from now on. It returns nil without an error if an optional
// object does not exist.
func (p *projector) object(ctx context.Context, key objectKey, optional bool) (runtime.Object, error) {
	object, exists, known := p.objects.known(key)
	if !known || p.fresh {
		var err error
		object, err = p.Client.Get(ctx, key.resource, key.namespace, key.name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		exists = err == nil
		var current runtime.Object
		if exists {
			current = object
		}
		p.objects.use(key, p.pod.UID, current, exists && isImmutable(object))
	}
	if exists {
		return object, nil
	}
	if optional {
		return nil, nil
	}
	// Users know the singular.
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: strings.TrimSuffix(key.resource.Resource, "s")}, key.name)
}

func isImmutable(object runtime.Object) bool {
	switch object := object.(type) {
	case *corev1.ConfigMap:
		return object.Immutable != nil && *object.Immutable
	case *corev1.Secret:
		return object.Immutable != nil && *object.Immutable
	}
	return false
}

// choose makes files of the given items, or of all keys if there are no items.
func choose(data map[string][]byte, items []corev1.KeyToPath, defaultMode fs.FileMode, optional bool, kind string) (payload, error) {
	content := payload{}
	if len(items) == 0 {
		for key, bytes := range data {
			content[key] = file{data: bytes, mode: defaultMode}
		}
		return content, nil
	}
	for _, item := range items {
		bytes, found := data[item.Key]
		if !found {
			if optional {
				continue
			}
			return nil, fmt.Errorf("references non-existent %s key: %s", kind, item.Key)
		}
		content[filepath.Clean(item.Path)] = file{data: bytes, mode: mode(item.Mode, int32(defaultMode))}
	}
	return content, nil
}

func (p *projector) downwardAPI(items []corev1.DownwardAPIVolumeFile, defaultMode fs.FileMode) (payload, error) {
	content := payload{}
	var problems []error
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = PodField(p.pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			var allocatable corev1.ResourceList
			if p.Allocatable != nil {
				allocatable = p.Allocatable()
			}
			text, err = containerResource(p.pod, item.ResourceFieldRef, allocatable)
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		content[filepath.Clean(item.Path)] = file{data: []byte(text), mode: mode(item.Mode, int32(defaultMode))}
	}
	return content, errors.Join(problems...)
}

// serviceAccountToken restricts the file to its pod's user if that user is known: by fsGroup, or if
// all containers run as the same user (KEP-1205, file permission). Otherwise the file is readable
// by every user, like other files of projections.
func (p *projector) serviceAccountToken(ctx context.Context, source *corev1.ServiceAccountTokenProjection, defaultMode fs.FileMode) (payload, error) {
	var audiences []string
	if source.Audience != "" {
		audiences = []string{source.Audience}
	}
	seconds := int64(3600)
	if source.ExpirationSeconds != nil {
		seconds = *source.ExpirationSeconds
	}
	value, err := p.tokens.get(ctx, p.pod, audiences, seconds)
	if err != nil {
		return nil, err
	}
	made := file{data: []byte(value), mode: defaultMode, uid: onlyUser(p.pod)}
	if made.uid != nil || fsGroup(p.pod) != nil {
		made.mode = 0o600
	}
	return payload{filepath.Clean(source.Path): made}, nil
}

// onlyUser returns the user that all containers run as, or nil if they differ or use their image's
// user.
func onlyUser(pod *corev1.Pod) *int64 {
	var podUser *int64
	if pod.Spec.SecurityContext != nil {
		podUser = pod.Spec.SecurityContext.RunAsUser
	}
	var users []*int64
	add := func(context *corev1.SecurityContext) {
		if context != nil && context.RunAsUser != nil {
			users = append(users, context.RunAsUser)
		} else {
			users = append(users, podUser)
		}
	}
	for i := range pod.Spec.InitContainers {
		add(pod.Spec.InitContainers[i].SecurityContext)
	}
	for i := range pod.Spec.Containers {
		add(pod.Spec.Containers[i].SecurityContext)
	}
	for i := range pod.Spec.EphemeralContainers {
		add(pod.Spec.EphemeralContainers[i].SecurityContext)
	}
	for _, user := range users {
		if user == nil || *user != *users[0] {
			return nil
		}
	}
	if len(users) == 0 {
		return nil
	}
	return users[0]
}

func mode(set *int32, otherwise int32) fs.FileMode {
	if set != nil {
		otherwise = *set
	}
	return fs.FileMode(otherwise).Perm()
}

func optional(set *bool) bool { return set != nil && *set }

// pluginDir is the folder name of a volume type, the same as upstream's: kubernetes.io~configmap.
func pluginDir(source *corev1.VolumeSource) string {
	kind := ""
	switch {
	case source.ConfigMap != nil:
		kind = "configmap"
	case source.Secret != nil:
		kind = "secret"
	case source.DownwardAPI != nil:
		kind = "downward-api"
	case source.Projected != nil:
		kind = "projected"
	case source.EmptyDir != nil:
		kind = "empty-dir"
	}
	return strings.Join([]string{"kubernetes.io", kind}, "~")
}
