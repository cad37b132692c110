package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/knarr-project/knarr/internal/auth"
)

// audience refuses a node's request for a token whose audience the pod does not use
// (ServiceAccountNodeAudienceRestriction).
func (p nodeRestriction) audience(ctx context.Context, a *Attributes, pod *corev1.Pod, audiences []string) error {
	if len(audiences) > 1 {
		return errors.New("node may only request 0 or 1 audiences")
	}
	wanted := ""
	if len(audiences) == 1 {
		wanted = audiences[0]
	}
	switch found, err := p.usesAudience(ctx, pod, wanted); {
	case found:
		return nil
	case err != nil:
		return fmt.Errorf("error validating audience %q: %w", wanted, err)
	}
	if p.authorizer != nil {
		decision, _, err := p.authorizer.Authorize(ctx, auth.Attributes{
			User: a.User, Verb: "request-serviceaccounts-token-audience", Namespace: a.Namespace, Version: "v1", Name: a.Name, Resource: wanted,
		})
		switch {
		case decision == auth.Allow:
			return nil
		case err != nil:
			return fmt.Errorf("audience %q not found in pod spec volume, error authorizing %s to request tokens for this audience: %w", wanted, a.User.Name, err)
		}
	}
	return fmt.Errorf("audience %q not found in pod spec volume, %s is not authorized to request tokens for this audience", wanted, a.User.Name)
}

// usesAudience reports whether a volume of the pod uses tokens for the audience, directly or
// through its CSI driver. A failed lookup is an error only if no other volume uses the audience.
func (p nodeRestriction) usesAudience(ctx context.Context, pod *corev1.Pod, audience string) (bool, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience
		}) {
			return true, nil
		}
		name, err := p.driverOf(ctx, pod, v)
		if err == nil && name != "" {
			var driver *storagev1.CSIDriver
			if driver, err = p.drivers.Find(ctx, "", name); err == nil &&
				slices.ContainsFunc(driver.Spec.TokenRequests, func(t storagev1.TokenRequest) bool { return t.Audience == audience }) {
				return true, nil
			}
			err = notFoundAs(err, storagev1.Resource("csidriver"), name)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return false, utilerrors.NewAggregate(errs)
}

// driverOf returns the CSI driver of a volume, or of the volume that its claim is bound to; "" if
// there is none.
func (p nodeRestriction) driverOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (string, error) {
	switch {
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		return p.driverOfClaim(ctx, pod.Namespace, ephemeral.VolumeClaimName(pod, v))
	case v.PersistentVolumeClaim != nil:
		return p.driverOfClaim(ctx, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	case v.CSI != nil:
		return v.CSI.Driver, nil
	}
	return migrated(map[string]bool{
		"ebs.csi.aws.com": v.AWSElasticBlockStore != nil, "pd.csi.storage.gke.io": v.GCEPersistentDisk != nil, "cinder.csi.openstack.org": v.Cinder != nil,
		"disk.csi.azure.com": v.AzureDisk != nil, "file.csi.azure.com": v.AzureFile != nil, "csi.vsphere.vmware.com": v.VsphereVolume != nil,
		"pxd.portworx.com": v.PortworxVolume != nil,
	}), nil
}

func (p nodeRestriction) driverOfClaim(ctx context.Context, namespace, name string) (string, error) {
	claim, err := p.claims.Find(ctx, namespace, name)
	if err != nil {
		return "", notFoundAs(err, corev1.Resource("persistentvolumeclaim"), name)
	}
	volume := corev1.Resource("persistentvolume")
	if claim.Spec.VolumeName == "" {
		return "", apierrors.NewNotFound(volume, "")
	}
	pv, err := p.volumes.Find(ctx, "", claim.Spec.VolumeName)
	if err != nil {
		return "", notFoundAs(err, volume, claim.Spec.VolumeName)
	}
	if pv.Spec.CSI != nil {
		return pv.Spec.CSI.Driver, nil
	}
	return migrated(map[string]bool{
		"ebs.csi.aws.com": pv.Spec.AWSElasticBlockStore != nil, "pd.csi.storage.gke.io": pv.Spec.GCEPersistentDisk != nil,
		"cinder.csi.openstack.org": pv.Spec.Cinder != nil, "disk.csi.azure.com": pv.Spec.AzureDisk != nil, "file.csi.azure.com": pv.Spec.AzureFile != nil,
		"csi.vsphere.vmware.com": pv.Spec.VsphereVolume != nil, "pxd.portworx.com": pv.Spec.PortworxVolume != nil,
	}), nil
}

// notFoundAs replaces a NotFound error with one about the given kind and name, as upstream does
// here.
func notFoundAs(err error, kind schema.GroupResource, name string) error {
	if apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(kind, name)
	}
	return err
}

// migrated returns the CSI driver that replaces a former in-tree volume type. A volume has one
// type.
func migrated(drivers map[string]bool) string {
	for driver, is := range drivers {
		if is {
			return driver
		}
	}
	return ""
}
