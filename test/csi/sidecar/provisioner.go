package sidecar

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	provisionerAnnotation = "volume.kubernetes.io/storage-provisioner"
	betaAnnotation        = "volume.beta.kubernetes.io/storage-provisioner"
	nodeAnnotation        = "volume.kubernetes.io/selected-node"
	provisionedBy         = "pv.kubernetes.io/provisioned-by"
	secretNameAnnotation  = "volume.kubernetes.io/provisioner-deletion-secret-name"
	secretSpaceAnnotation = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
	// deletionFinalizer keeps a volume's object until the driver has deleted the volume.
	deletionFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	parameterPrefix   = "csi.storage.k8s.io/"
)

// provisioner creates volumes for claims, and deletes them.
type provisioner struct {
	*cluster
	*driver
	topology bool
}

// Provision creates and deletes the driver's volumes until ctx ends.
func Provision(ctx context.Context, o Options) error {
	d, err := dial(ctx, o)
	if err != nil {
		return err
	}
	defer d.Close()
	c, err := newCluster(d.name)
	if err != nil {
		return err
	}
	p := &provisioner{cluster: c, driver: d, topology: slices.Contains(d.services, csispec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)}
	core, storage := c.informers.Core().V1(), c.informers.Storage().V1()
	none := func(any) []key { return nil } // only read
	return c.work(ctx, o.Workers, map[cache.SharedIndexInformer]func(any) []key{
		core.PersistentVolumeClaims().Informer(): keyOf,
		core.PersistentVolumes().Informer():      keyOf,
		core.Nodes().Informer():                  none,
		storage.StorageClasses().Informer():      none,
		storage.CSINodes().Informer():            none,
		storage.VolumeAttachments().Informer(): func(object any) []key {
			if a, ok := object.(*storagev1.VolumeAttachment); ok && a.Spec.Source.PersistentVolumeName != nil {
				return []key{{name: *a.Spec.Source.PersistentVolumeName}}
			}
			return nil
		},
	}, func(ctx context.Context, k key) error {
		if k.namespace == "" {
			return p.volume(ctx, k.name)
		}
		return p.claim(ctx, k)
	})
}

// claim provides a claim with a volume, if it waits for one of this driver.
func (p *provisioner) claim(ctx context.Context, k key) error {
	claim, err := p.informers.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(k.namespace).Get(k.name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		return err
	}
	if claim.Annotations[provisionerAnnotation] != p.name && claim.Annotations[betaAnnotation] != p.name || claim.Spec.StorageClassName == nil {
		return nil
	}
	class, err := p.informers.Storage().V1().StorageClasses().Lister().Get(*claim.Spec.StorageClassName)
	if err != nil || class.Provisioner != p.name {
		return err
	}
	late := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	if late && claim.Annotations[nodeAnnotation] == "" {
		return nil
	}
	// The informer may not have seen the volume of an earlier call.
	if _, err := p.CoreV1().PersistentVolumes().Get(ctx, volumeName(claim), metav1.GetOptions{}); err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	p.events.Eventf(claim, corev1.EventTypeNormal, "Provisioning", "External provisioner is provisioning volume for claim %q", k.namespace+"/"+k.name)
	err = p.provision(ctx, claim, class)
	if err == nil {
		p.events.Eventf(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", volumeName(claim))
		return nil
	}
	p.events.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume with StorageClass %q: %v", class.Name, err)
	if late && p.topology && status.Code(err) == codes.ResourceExhausted {
		// Another node may have room: the scheduler chooses again.
		claim = claim.DeepCopy()
		delete(claim.Annotations, nodeAnnotation)
		_, err = p.CoreV1().PersistentVolumeClaims(k.namespace).Update(ctx, claim, metav1.UpdateOptions{})
	}
	return err
}

func volumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

func (p *provisioner) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	name, block := volumeName(claim), isBlock(claim.Spec.VolumeMode)
	fsType := class.Parameters[parameterPrefix+"fstype"]
	if fsType == "" && !block {
		fsType = p.FSType
	}
	secrets := map[string]*corev1.SecretReference{}
	for _, kind := range []string{"provisioner", "controller-publish", "node-stage", "node-publish", "controller-expand", "node-expand"} {
		var err error
		if secrets[kind], err = secretOf(class.Parameters, kind, name, claim); err != nil {
			return err
		}
	}
	request := &csispec.CreateVolumeRequest{
		Name: name, CapacityRange: &csispec.CapacityRange{RequiredBytes: claim.Spec.Resources.Requests.Storage().Value()}, Parameters: map[string]string{},
		VolumeCapabilities: []*csispec.VolumeCapability{capability(claim.Spec.AccessModes, block, fsType, class.MountOptions)},
	}
	for parameter, value := range class.Parameters {
		if !strings.HasPrefix(parameter, parameterPrefix) {
			request.Parameters[parameter] = value
		}
	}
	var err error
	if request.VolumeContentSource, err = p.source(ctx, claim); err != nil {
		return err
	}
	if request.AccessibilityRequirements, err = p.requirements(claim.Annotations[nodeAnnotation]); err != nil {
		return err
	}
	if request.MutableParameters, err = p.attributes(ctx, claim.Spec.VolumeAttributesClassName); err != nil {
		return err
	}
	if request.Secrets, err = p.secret(ctx, secrets["provisioner"]); err != nil {
		return err
	}
	calling, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	response, err := csispec.NewControllerClient(p).CreateVolume(calling, request)
	if err != nil {
		return err
	}
	volume := p.describe(claim, class, response.Volume, secrets)
	if !block {
		volume.Spec.CSI.FSType = fsType
	}
	_, err = p.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// describe makes the object of a created volume.
func (p *provisioner) describe(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, made *csispec.Volume, secrets map[string]*corev1.SecretReference) *corev1.PersistentVolume {
	size := *claim.Spec.Resources.Requests.Storage()
	if made.CapacityBytes > 0 {
		size = *resource.NewQuantity(made.CapacityBytes, resource.BinarySI)
	}
	attributes := map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": p.name}
	maps.Copy(attributes, made.VolumeContext)
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volumeName(claim), Annotations: map[string]string{provisionedBy: p.name}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: size}, AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			StorageClassName: class.Name, MountOptions: class.MountOptions, VolumeAttributesClassName: claim.Spec.VolumeAttributesClassName,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: p.name, VolumeHandle: made.VolumeId, VolumeAttributes: attributes,
				ControllerPublishSecretRef: secrets["controller-publish"], NodeStageSecretRef: secrets["node-stage"], NodePublishSecretRef: secrets["node-publish"],
				ControllerExpandSecretRef: secrets["controller-expand"], NodeExpandSecretRef: secrets["node-expand"],
			}},
		},
	}
	if class.ReclaimPolicy != nil {
		volume.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	if volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		volume.Finalizers = []string{deletionFinalizer}
	}
	if s := secrets["provisioner"]; s != nil {
		volume.Annotations[secretNameAnnotation], volume.Annotations[secretSpaceAnnotation] = s.Name, s.Namespace
	}
	if len(made.AccessibleTopology) > 0 {
		volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
		for _, t := range made.AccessibleTopology {
			var term corev1.NodeSelectorTerm
			for _, segment := range slices.Sorted(maps.Keys(t.Segments)) {
				term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: segment, Operator: corev1.NodeSelectorOpIn, Values: []string{t.Segments[segment]}})
			}
			volume.Spec.NodeAffinity.Required.NodeSelectorTerms = append(volume.Spec.NodeAffinity.Required.NodeSelectorTerms, term)
		}
	}
	return volume
}

// requirements asks for a volume on the selected node. Without one, each node with the driver will
// do.
func (p *provisioner) requirements(selected string) (*csispec.TopologyRequirement, error) {
	if !p.topology {
		return nil, nil
	}
	nodes, err := p.informers.Storage().V1().CSINodes().Lister().List(everything)
	if err != nil {
		return nil, err
	}
	all := &csispec.TopologyRequirement{}
	for _, n := range nodes {
		if selected != "" && n.Name != selected {
			continue
		}
		node, err := p.informers.Core().V1().Nodes().Lister().Get(n.Name)
		if err != nil {
			return nil, err
		}
		for _, d := range n.Spec.Drivers {
			if d.Name != p.name || len(d.TopologyKeys) == 0 {
				continue
			}
			segments := map[string]string{}
			for _, k := range d.TopologyKeys {
				segments[k] = node.Labels[k]
			}
			all.Requisite = append(all.Requisite, &csispec.Topology{Segments: segments})
		}
	}
	if len(all.Requisite) == 0 && selected != "" {
		return nil, fmt.Errorf("node %s has no topology of driver %s", selected, p.name)
	}
	all.Preferred = all.Requisite
	return all, nil
}

// volume deletes a released volume, and keeps the finalizer as the reclaim policy needs it.
func (p *provisioner) volume(ctx context.Context, name string) error {
	volume, err := p.informers.Core().V1().PersistentVolumes().Lister().Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || volume.Spec.CSI == nil || volume.Spec.CSI.Driver != p.name {
		return err
	}
	remove := volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	if kept := slices.Contains(volume.Finalizers, deletionFinalizer); kept != remove && volume.DeletionTimestamp == nil && volume.Status.Phase == corev1.VolumeBound {
		return p.finalize(ctx, volume, remove)
	}
	if !remove || volume.Status.Phase != corev1.VolumeReleased || volume.Annotations[provisionedBy] != p.name {
		return nil
	}
	attachments, err := p.informers.Storage().V1().VolumeAttachments().Lister().List(everything)
	if err != nil {
		return err
	}
	for _, a := range attachments {
		if a.Spec.Source.PersistentVolumeName != nil && *a.Spec.Source.PersistentVolumeName == name {
			return nil // its end queues the volume again
		}
	}
	request := &csispec.DeleteVolumeRequest{VolumeId: volume.Spec.CSI.VolumeHandle}
	if secret := volume.Annotations[secretNameAnnotation]; secret != "" {
		if request.Secrets, err = p.secret(ctx, &corev1.SecretReference{Name: secret, Namespace: volume.Annotations[secretSpaceAnnotation]}); err != nil {
			return err
		}
	}
	calling, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	if _, err := csispec.NewControllerClient(p).DeleteVolume(calling, request); err != nil {
		p.events.Eventf(volume, corev1.EventTypeWarning, "VolumeFailedDelete", "%v", err)
		return err
	}
	if err := p.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return p.finalize(ctx, volume, false)
}
