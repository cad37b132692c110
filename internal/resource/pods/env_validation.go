package pods

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/storage"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func validateEnv(vars []corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range vars {
		v, at := &vars[i], path.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, validate.Invalids(at.Child("name"), v.Name, validation.IsRelaxedEnvVarName(v.Name))...)
		}
		errs = append(errs, validateEnvSource(v, at.Child("valueFrom"))...)
	}
	return errs
}

func validateEnvSource(v *corev1.EnvVar, path *field.Path) field.ErrorList {
	if v.ValueFrom == nil {
		return nil
	}
	var errs field.ErrorList
	sources := 0
	if r := v.ValueFrom.FieldRef; r != nil {
		sources++
		errs = append(errs, validateFieldRef(r, envFields, path.Child("fieldRef"))...)
	}
	if r := v.ValueFrom.ResourceFieldRef; r != nil {
		sources++
		errs = append(errs, validateResourceRef(r, false, path.Child("resourceFieldRef"))...)
	}
	if r := v.ValueFrom.ConfigMapKeyRef; r != nil {
		sources++
		errs = append(errs, validateKeyRef(r.Name, r.Key, path.Child("configMapKeyRef"))...)
	}
	if r := v.ValueFrom.SecretKeyRef; r != nil {
		sources++
		errs = append(errs, validateKeyRef(r.Name, r.Key, path.Child("secretKeyRef"))...)
	}
	if r := v.ValueFrom.FileKeyRef; r != nil {
		sources++
		errs = append(errs, validateFileKeyRef(r, path.Child("fileKeyRef"))...)
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case v.Value != "":
		errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func validateKeyRef(name, key string, path *field.Path) field.ErrorList {
	errs := validate.Subdomain(name, path.Child("name"))
	if key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, validate.Invalids(path.Child("key"), key, validation.IsConfigMapKey(key))...)
}

func validateFileKeyRef(r *corev1.FileKeySelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.VolumeName == "" {
		errs = append(errs, field.Required(path.Child("volumeName"), ""))
	} else {
		errs = append(errs, validate.Label(r.VolumeName, path.Child("volumeName"))...)
	}
	if r.Path == "" {
		errs = append(errs, field.Required(path.Child("path"), ""))
	} else {
		// Relative to the volume, with or without a leading slash.
		errs = append(errs, storage.ValidateNoBacksteps(r.Path, path.Child("path"))...)
	}
	if r.Key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, validate.Invalids(path.Child("key"), r.Key, validation.IsRelaxedEnvVarName(r.Key))...)
}

func validateEnvFrom(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range sources {
		s, at := &sources[i], path.Index(i)
		if s.Prefix != "" {
			errs = append(errs, validate.Invalids(at.Child("prefix"), s.Prefix, validation.IsRelaxedEnvVarName(s.Prefix))...)
		}
		if s.ConfigMapRef != nil {
			errs = append(errs, validate.RequiredSubdomain(s.ConfigMapRef.Name, at.Child("configMapRef", "name"))...)
		}
		if s.SecretRef != nil {
			errs = append(errs, validate.RequiredSubdomain(s.SecretRef.Name, at.Child("secretRef", "name"))...)
		}
		switch {
		case s.ConfigMapRef == nil && s.SecretRef == nil:
			errs = append(errs, field.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
		case s.ConfigMapRef != nil && s.SecretRef != nil:
			errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}

// Pod fields that the downward API offers to environment variables and to volumes, sorted.
var (
	envFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	volumeFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
	// podFieldLabels are all field paths of a v1 pod, whether the downward API offers them or not.
	podFieldLabels = []string{
		"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
		"spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase",
		"status.podIP", "status.podIPs", "status.nominatedNodeName", "status.hostIP", "status.hostIPs",
	}
)

func validateFieldRef(r *corev1.ObjectFieldSelector, allowed []string, path *field.Path) field.ErrorList {
	if r.APIVersion == "" {
		return field.ErrorList{field.Required(path.Child("apiVersion"), "")}
	}
	if r.FieldPath == "" {
		return field.ErrorList{field.Required(path.Child("fieldPath"), "")}
	}
	at := path.Child("fieldPath")
	name, key, subscript := splitSubscript(r.FieldPath)
	if r.APIVersion != "v1" {
		return field.ErrorList{field.Invalid(at, r.FieldPath, fmt.Sprintf("error converting fieldPath: unsupported pod version: %s", r.APIVersion))}
	}
	if subscript {
		switch name {
		case "metadata.annotations":
			return validate.Invalids(path, key, validation.IsQualifiedName(strings.ToLower(key)))
		case "metadata.labels":
			return validate.Invalids(path, key, validation.IsQualifiedName(key))
		}
		if slices.Contains(podFieldLabels, name) {
			return field.ErrorList{field.Invalid(path, name, "does not support subscript")}
		}
		return field.ErrorList{field.Invalid(at, r.FieldPath, "error converting fieldPath: field label does not support subscript")}
	}
	if !slices.Contains(podFieldLabels, r.FieldPath) {
		return field.ErrorList{field.Invalid(at, r.FieldPath, "error converting fieldPath: field label not supported: "+r.FieldPath)}
	}
	if !slices.Contains(allowed, r.FieldPath) {
		return field.ErrorList{field.NotSupported(at, r.FieldPath, allowed)}
	}
	return nil
}

// splitSubscript splits metadata.annotations['key'] into name and key.
func splitSubscript(path string) (name, key string, ok bool) {
	name, rest, found := strings.Cut(path, "['")
	if !found {
		return path, "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	if !ok {
		return path, "", false
	}
	return name, key, true
}

var containerResourceFields = []string{
	"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory",
}

func validateResourceRef(r *corev1.ResourceFieldSelector, volume bool, path *field.Path) field.ErrorList {
	switch {
	case volume && r.ContainerName == "":
		return field.ErrorList{field.Required(path.Child("containerName"), "")}
	case r.Resource == "":
		return field.ErrorList{field.Required(path.Child("resource"), "")}
	case strings.HasPrefix(r.Resource, "limits.hugepages-") || strings.HasPrefix(r.Resource, "requests.hugepages-"):
	case !slices.Contains(containerResourceFields, r.Resource):
		return field.ErrorList{field.NotSupported(path.Child("resource"), r.Resource, containerResourceFields)}
	}
	return validateDivisor(r, path)
}

var (
	cpuDivisors    = []string{"1m", "1"}
	memoryDivisors = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
)

func validateDivisor(r *corev1.ResourceFieldSelector, path *field.Path) field.ErrorList {
	if r.Divisor.Cmp(resource.Quantity{}) == 0 {
		return nil
	}
	allowed, what := memoryDivisors, "memory"
	switch {
	case strings.HasSuffix(r.Resource, ".cpu"):
		allowed, what = cpuDivisors, "cpu"
	case strings.HasSuffix(r.Resource, ".ephemeral-storage"):
		what = "local ephemeral storage"
	case strings.Contains(r.Resource, ".hugepages-"):
		what = "hugepages"
	}
	if slices.Contains(allowed, r.Divisor.String()) {
		return nil
	}
	list := strings.Join(allowed, ", ")
	if what == "cpu" {
		list = "1m and 1"
	}
	return field.ErrorList{field.Invalid(path.Child("divisor"), r.Resource, fmt.Sprintf("only divisor's values %s are supported with the %s resource", list, what))}
}
