package pods

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/storage"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

const (
	errFileMode     = "must be a number between 0 and 0777 (octal), both inclusive"
	errManyInSource = "may not specify more than 1 volume type per source"
	errRelativePath = "must be a relative path"
)

// validateVolumes checks a pod's volumes and returns the valid ones, which mounts may name. podName
// is "" for a template.
func validateVolumes(volumes []corev1.Volume, podName string, at *field.Path) (right map[string]*corev1.Volume, errs field.ErrorList) {
	right = map[string]*corev1.Volume{}
	names, made := map[string]bool{}, map[string]bool{}
	for i := range volumes {
		if v := &volumes[i]; v.Ephemeral != nil && podName != "" {
			made[podName+"-"+v.Name] = true
		}
	}
	for i := range volumes {
		v, at := &volumes[i], at.Index(i)
		name, before := at.Child("name"), len(errs)
		switch {
		case v.Name == "":
			errs = append(errs, field.Required(name, ""))
		case len(validation.IsDNS1123Label(v.Name)) > 0:
			errs = append(errs, validate.Label(v.Name, name)...)
		case names[v.Name]:
			errs = append(errs, field.Duplicate(name, v.Name))
		}
		names[v.Name] = true
		if v.PersistentVolumeClaim != nil && made[v.PersistentVolumeClaim.ClaimName] {
			errs = append(errs, field.Invalid(at.Child("persistentVolumeClaim").Child("claimName"), v.PersistentVolumeClaim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume"))
		}
		errs = append(errs, validateVolumeSource(&v.VolumeSource, at)...)
		if len(errs) == before {
			right[v.Name] = v
		}
		if v.Ephemeral != nil && podName != "" && v.Name != "" {
			claim := podName + "-" + v.Name
			for _, m := range validation.IsDNS1123Subdomain(claim) {
				errs = append(errs, field.Invalid(name, v.Name, fmt.Sprintf("PVC name %q: %s", claim, m)))
			}
		}
	}
	return right, errs
}

// podVolumeSources are the sources of a pod's volume in the order of the checks: the first one that
// is set counts.
var podVolumeSources = []string{"emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi", "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder",
	"cephfs", "quobyte", "downwardAPI", "fc", "flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos", "projected", "scaleIO",
	"csi", "ephemeral", "image"}

// validateVolumeSource requires exactly one source: it checks the first and forbids the others.
func validateVolumeSource(s *corev1.VolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := storage.SourcesIn(*s)
	found := false
	for _, name := range podVolumeSources {
		source := sources[name]
		switch {
		case source == nil:
		case found:
			errs = append(errs, storage.SecondSource(name, at))
		default:
			found = true
			errs = append(errs, validateOneVolumeSource(source, storage.SourcePath(name, at))...)
		}
	}
	if !found {
		errs = append(errs, field.Required(at, "must specify a volume type"))
	}
	return errs
}

func validateOneVolumeSource(source any, at *field.Path) field.ErrorList {
	switch s := source.(type) {
	case *corev1.EmptyDirVolumeSource:
		if s.SizeLimit != nil && s.SizeLimit.Sign() < 0 {
			return field.ErrorList{field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")}
		}
		return nil
	case *corev1.HostPathVolumeSource:
		return storage.ValidateHostPath(s, at)
	case *corev1.GitRepoVolumeSource:
		errs := validate.Required(at, "repository", s.Repository)
		return append(errs, validateDescendingPath(s.Directory, at.Child("directory"))...)
	case *corev1.SecretVolumeSource:
		errs := validate.Required(at, "secretName", s.SecretName)
		errs = append(errs, validateFileMode(s.DefaultMode, at.Child("defaultMode"))...)
		return append(errs, validateItems(s.Items, at.Child("items"))...)
	case *corev1.ConfigMapVolumeSource:
		errs := validate.Required(at, "name", s.Name)
		errs = append(errs, validateFileMode(s.DefaultMode, at.Child("defaultMode"))...)
		return append(errs, validateItems(s.Items, at.Child("items"))...)
	case *corev1.DownwardAPIVolumeSource:
		errs := validateFileMode(s.DefaultMode, at.Child("defaultMode"))
		for i := range s.Items {
			// As upstream, errors name the volume, not the item.
			errs = append(errs, validateDownwardFile(&s.Items[i], at)...)
		}
		return errs
	case *corev1.ProjectedVolumeSource:
		return validateProjected(s, at)
	case *corev1.PersistentVolumeClaimVolumeSource:
		return validate.Required(at, "claimName", s.ClaimName)
	case *corev1.EphemeralVolumeSource:
		return validateEphemeral(s, at)
	case *corev1.CSIVolumeSource:
		errs := storage.ValidateDriverName(s.Driver, at.Child("driver"))
		if s.NodePublishSecretRef != nil {
			errs = append(errs, validateNodePublishSecret(s.NodePublishSecretRef.Name, at)...)
		}
		return errs
	case *corev1.ImageVolumeSource:
		errs := validate.Required(at, "reference", s.Reference)
		return append(errs, validatePullPolicy(s.PullPolicy, at.Child("pullPolicy"))...)
	}
	return storage.ValidateLegacySource(source, at)
}

// validateNodePublishSecret checks the reference. As upstream, an invalid name is reported at the
// volume, a missing one at the reference.
func validateNodePublishSecret(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at.Child("nodePublishSecretRef", "name"), "")}
	}
	return validate.Subdomain(name, at.Child("name"))
}

func validateFileMode(mode *int32, at *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(at, *mode, errFileMode)}
	}
	return nil
}

func validateItems(items []corev1.KeyToPath, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		errs = append(errs, validateKeyToPath(&items[i], at.Index(i))...)
	}
	return errs
}

func validateKeyToPath(k *corev1.KeyToPath, at *field.Path) field.ErrorList {
	errs := validate.Required(at, "key", k.Key)
	if k.Path == "" {
		errs = append(errs, field.Required(at.Child("path"), ""))
	}
	errs = append(errs, validateLocalPath(k.Path, at.Child("path"))...)
	return append(errs, validateFileMode(k.Mode, at.Child("mode"))...)
}

// validateLocalPath requires a relative path without "..". It must not start with ".." either, a
// prefix that the kubelet reserves.
func validateLocalPath(p string, at *field.Path) field.ErrorList {
	errs := validateDescendingPath(p, at)
	if strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../") {
		errs = append(errs, field.Invalid(at, p, "must not start with '..'"))
	}
	return errs
}

func validateDescendingPath(p string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if path.IsAbs(p) {
		errs = append(errs, field.Invalid(at, p, errRelativePath))
	}
	return append(errs, storage.ValidateNoBacksteps(p, at)...)
}

func validateDownwardFile(f *corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	errs := validate.Required(at, "path", f.Path)
	errs = append(errs, validateLocalPath(f.Path, at.Child("path"))...)
	switch {
	case f.FieldRef != nil:
		errs = append(errs, validateFieldRef(f.FieldRef, volumeFields, at.Child("fieldRef"))...)
		if f.ResourceFieldRef != nil {
			errs = append(errs, field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		}
	case f.ResourceFieldRef != nil:
		errs = append(errs, validateResourceRef(f.ResourceFieldRef, true, at.Child("resourceFieldRef"))...)
	default:
		errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
	}
	return append(errs, validateFileMode(f.Mode, at.Child("mode"))...)
}

func validateProjected(s *corev1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
	errs := validateFileMode(s.DefaultMode, at.Child("defaultMode"))
	taken := map[string]bool{}
	// take reports a path that an earlier projection writes too.
	take := func(p string, value any) {
		if p == "" {
			return
		}
		if taken[p] {
			errs = append(errs, field.Invalid(at, value, "conflicting duplicate paths"))
		}
		taken[p] = true
	}
	for i := range s.Sources {
		source, whole, at := &s.Sources[i], at, at.Child("sources").Index(i)
		count := 0
		if p := source.Secret; p != nil {
			count++
			errs = append(errs, validate.Required(at.Child("secret"), "name", p.Name)...)
			errs = append(errs, validateItems(p.Items, at.Child("secret", "items"))...)
			for _, item := range p.Items {
				take(item.Path, p.Name)
			}
		}
		if p := source.ConfigMap; p != nil {
			count++
			errs = append(errs, validate.Required(at.Child("configMap"), "name", p.Name)...)
			errs = append(errs, validateItems(p.Items, at.Child("configMap", "items"))...)
			for _, item := range p.Items {
				take(item.Path, p.Name)
			}
		}
		if p := source.DownwardAPI; p != nil {
			count++
			for j := range p.Items {
				errs = append(errs, validateDownwardFile(&p.Items[j], at.Child("downwardAPI"))...)
				take(p.Items[j].Path, p.Items[j].Path)
			}
		}
		if p := source.ServiceAccountToken; p != nil {
			count++
			// A path that another projection uses causes only a warning.
			errs = append(errs, validateTokenProjection(p, whole, at.Child("serviceAccountToken"))...)
		}
		if p := source.ClusterTrustBundle; p != nil {
			count++
			errs = append(errs, validateTrustBundle(p, at.Child("clusterTrustBundle"))...)
			take(p.Path, p.Path)
		}
		if p := source.PodCertificate; p != nil {
			count++
			errs = append(errs, validatePodCertificate(p, at.Child("podCertificate"))...)
			for _, p := range []string{p.CredentialBundlePath, p.KeyPath, p.CertificateChainPath} {
				take(p, p)
			}
		}
		if count > 1 {
			errs = append(errs, field.Forbidden(at, errManyInSource))
		}
	}
	return errs
}

// validateTokenProjection checks a token projection; as upstream, errors about its path name the
// whole volume.
func validateTokenProjection(p *corev1.ServiceAccountTokenProjection, whole, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if seconds := p.ExpirationSeconds; seconds != nil {
		if *seconds < 600 {
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *seconds, "may not specify a duration less than 10 minutes"))
		} else if *seconds > 1<<32 {
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *seconds, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	if p.Path == "" {
		return append(errs, field.Required(whole.Child("path"), ""))
	}
	return append(errs, validateLocalPath(p.Path, whole.Child("path"))...)
}

func validateTrustBundle(p *corev1.ClusterTrustBundleProjection, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	byName, bySigner := p.Name != nil, p.SignerName != nil
	switch {
	case byName && bySigner:
		errs = append(errs, field.Invalid(at, p.Name, "only one of name and signerName may be used"))
	case byName:
		if *p.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "must be a valid object name"))
		}
		if p.LabelSelector != nil {
			errs = append(errs, field.Invalid(at.Child("labelSelector"), p.LabelSelector, "labelSelector must be unset if name is specified"))
		}
	case bySigner:
		if *p.SignerName == "" {
			errs = append(errs, field.Required(at.Child("signerName"), "must be a valid signer name"))
		}
		errs = append(errs, validate.Selector(p.LabelSelector, at.Child("labelSelector"))...)
	default:
		errs = append(errs, field.Required(at, "either name or signerName must be specified"))
	}
	errs = append(errs, validate.Required(at, "path", p.Path)...)
	return append(errs, validateLocalPath(p.Path, at.Child("path"))...)
}

func validatePodCertificate(p *corev1.PodCertificateProjection, at *field.Path) field.ErrorList {
	errs := validate.Required(at, "signerName", p.SignerName)
	errs = append(errs, validate.NotSupportedUnless(p.KeyType, at.Child("keyType"), "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")...)
	if s := p.MaxExpirationSeconds; s != nil && (*s < 3600 || *s > 91*24*3600) {
		errs = append(errs, field.Invalid(at.Child("maxExpirationSeconds"), *s, validation.InclusiveRangeError(3600, 91*24*3600)))
	}
	if p.CredentialBundlePath == "" && p.KeyPath == "" && p.CertificateChainPath == "" {
		errs = append(errs, field.Required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
	for name, value := range map[string]string{"credentialBundlePath": p.CredentialBundlePath, "keyPath": p.KeyPath, "certificateChainPath": p.CertificateChainPath} {
		if value != "" {
			errs = append(errs, validateLocalPath(value, at.Child(name))...)
		}
	}
	return errs
}

func validateEphemeral(s *corev1.EphemeralVolumeSource, at *field.Path) field.ErrorList {
	if s.VolumeClaimTemplate == nil {
		return field.ErrorList{field.Required(at.Child("volumeClaimTemplate"), "")}
	}
	template := at.Child("volumeClaimTemplate")
	errs := validate.TemplateMeta(&s.VolumeClaimTemplate.ObjectMeta, template.Child("metadata"))
	errs = append(errs, storage.ValidateClaimSpec(&s.VolumeClaimTemplate.Spec, template.Child("spec"))...)
	return errs
}
