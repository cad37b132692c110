package why

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	volumehelper "k8s.io/component-helpers/storage/volume"
)

// Causes of claims that are not bound.
const (
	causeClaimClass       = "claim-class"
	causeClaimNoDefault   = "claim-no-default-class"
	causeClaimNoConsumer  = "claim-waits-for-pod"
	causeClaimProvisioner = "claim-provisioner"
	causeClaimNoVolume    = "claim-no-matching-volume"
	causeClaimLost        = "claim-volume-lost"
	causeClaimVolume      = "claim-named-volume"
	causeClaimProvisions  = "claim-provisioning"
	causeProvisionFailed  = "claim-provisioning-failed"
	causeClaimResize      = "claim-resize"
	causeReleased         = "volume-released"
	causeVolumeFailed     = "volume-failed"
	causeDeviceClass      = "device-class-missing"
	causeNoDevices        = "devices-none"
	causeDevicesTaken     = "devices-not-allocated"
)

// noProvisioner is the provisioner of classes whose volumes are made by hand.
const noProvisioner = volumehelper.NotSupportedProvisioner

func waitsForPod(s *Snapshot, claim *corev1.PersistentVolumeClaim) bool {
	class, p := get[*storagev1.StorageClass](s, "", volumehelper.GetPersistentVolumeClaimClass(claim))
	return p == Found && claim.Spec.VolumeName == "" && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// claimBinding explains a claim that is not bound.
func claimBinding(s *Snapshot, c *corev1.PersistentVolumeClaim) []Finding {
	switch {
	case c.DeletionTimestamp != nil:
		return nil
	case c.Status.Phase == corev1.ClaimLost:
		return one(causeClaimLost, "its volume "+c.Spec.VolumeName+" does not exist any more: the data is lost to it.", "Restore the PersistentVolume, or delete the claim and restore the data from a backup.")
	case c.Status.Phase == corev1.ClaimBound:
		return claimResize(c)
	case c.Spec.VolumeName != "":
		return namedVolume(s, c)
	}
	name, given := volumehelper.GetPersistentVolumeClaimClass(c), c.Spec.StorageClassName != nil
	if name == "" {
		return classless(s, c, given)
	}
	ref := Ref{"StorageClass", "", name}
	class, presence := get[*storagev1.StorageClass](s, "", name)
	volumes, ok := list[*corev1.PersistentVolume](s, "")
	fits := slices.ContainsFunc(volumes, func(v *corev1.PersistentVolume) bool { return mismatch(v, c) == "" })
	switch {
	case presence == Unknown || ok && fits:
		return nil
	case presence == Absent:
		f := linked(causeClaimClass, "it is not bound: its StorageClass "+name+" does not exist.", Link{Object: ref})
		return []Finding{f}
	case class.Provisioner == noProvisioner:
		return unmatched(s, c, name)
	case waitsForPod(s, c) && !hasConsumer(s, c):
		return one(causeClaimNoConsumer, "it waits for the first pod that uses it (volumeBindingMode WaitForFirstConsumer).", "Nothing is wrong: create the pod that uses the claim.")
	case waitsForPod(s, c) && c.Annotations[volumehelper.AnnSelectedNode] == "":
		return nil // the pod that uses it is explained
	}
	return provisioning(s, c, class)
}

// provisioning explains a claim whose volume a provisioner must make.
func provisioning(s *Snapshot, c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) []Finding {
	if e := s.event(refTo(c), "ProvisioningFailed"); e != nil {
		f := one(causeProvisionFailed, "the provisioner "+class.Provisioner+" cannot make its volume.", "Correct what the event's message names.")
		f[0].Evidence = []Fact{{Text: "event ProvisioningFailed: " + oneLine(e.Message)}}
		return f
	}
	drivers, ok := list[*storagev1.CSIDriver](s, "")
	installed := slices.ContainsFunc(drivers, func(d *storagev1.CSIDriver) bool { return d.Name == class.Provisioner })
	nodes, nodesOK := list[*storagev1.CSINode](s, "")
	for _, n := range nodes {
		installed = installed || slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == class.Provisioner })
	}
	if s.event(refTo(c), "Provisioning") == nil && ok && nodesOK && !installed && !builtIn(class.Provisioner) {
		f := one(causeClaimProvisioner, "nothing makes its volume: the provisioner "+class.Provisioner+" of StorageClass "+class.Name+" is not installed.",
			"Install the driver "+class.Provisioner+", or use another StorageClass.")
		f[0].Evidence = []Fact{{Text: "there is no CSIDriver and no CSINode with this driver", Object: &Ref{"StorageClass", "", class.Name}}}
		return f
	}
	f := one(causeClaimProvisions, "the provisioner "+class.Provisioner+" has not made its volume yet.", "Read the log of the provisioner.")
	return f
}

// builtIn reports whether a provisioner is part of knarr, which needs no CSIDriver.
func builtIn(provisioner string) bool { return strings.HasSuffix(provisioner, ".knarr.dev") }

func classless(s *Snapshot, c *corev1.PersistentVolumeClaim, given bool) []Finding {
	if volumes, ok := list[*corev1.PersistentVolume](s, ""); !ok || slices.ContainsFunc(volumes, func(v *corev1.PersistentVolume) bool { return mismatch(v, c) == "" }) {
		return nil
	}
	if given {
		return unmatched(s, c, "")
	}
	classes, ok := list[*storagev1.StorageClass](s, "")
	if !ok {
		return nil
	}
	var known []string
	for _, class := range classes {
		known = append(known, class.Name)
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			return nil // the controller sets it within moments
		}
	}
	f := one(causeClaimNoDefault, "it names no StorageClass, and the cluster has no default one.", "Set storageClassName in a new claim, or make a class the default with the annotation storageclass.kubernetes.io/is-default-class=true.")
	f[0].Evidence = []Fact{{Text: "classes: " + names(known)}}
	return f
}

// unmatched explains a claim that only an existing volume can satisfy.
func unmatched(s *Snapshot, c *corev1.PersistentVolumeClaim, class string) []Finding {
	volumes, ok := list[*corev1.PersistentVolume](s, "")
	if !ok {
		return nil
	}
	f := Finding{Cause: causeClaimNoVolume, Problem: "no PersistentVolume fits it, and its class makes none.", Remedy: "Create a PersistentVolume that fits, or change the claim."}
	for _, v := range volumes {
		if volumehelper.GetPersistentVolumeClass(v) != class {
			continue
		}
		ref := refTo(v)
		f.Evidence = append(f.Evidence, Fact{Text: ref.String() + " " + mismatch(v, c), Object: &ref})
		if v.Status.Phase == corev1.VolumeReleased {
			f.links = append(f.links, Link{Object: ref})
		}
	}
	return []Finding{f}
}

// mismatch says why a volume does not satisfy a claim; "" if it does.
func mismatch(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) string {
	size, want := v.Spec.Capacity[corev1.ResourceStorage], c.Spec.Resources.Requests[corev1.ResourceStorage]
	if volumehelper.GetPersistentVolumeClass(v) != volumehelper.GetPersistentVolumeClaimClass(c) {
		return "has the class " + volumehelper.GetPersistentVolumeClass(v)
	}
	if ref := v.Spec.ClaimRef; ref != nil && (ref.Namespace != c.Namespace || ref.Name != c.Name || ref.UID != "" && ref.UID != c.UID) {
		return fmt.Sprintf("is %s for claim %s/%s", strings.ToLower(string(v.Status.Phase)), ref.Namespace, ref.Name)
	}
	if size.Cmp(want) < 0 {
		return fmt.Sprintf("has %s, the claim asks for %s", size.String(), want.String())
	}
	for _, mode := range c.Spec.AccessModes {
		if !slices.Contains(v.Spec.AccessModes, mode) {
			return fmt.Sprintf("does not offer the access mode %s", mode)
		}
	}
	if volumeMode(v.Spec.VolumeMode) != volumeMode(c.Spec.VolumeMode) {
		return fmt.Sprintf("has the volume mode %s", volumeMode(v.Spec.VolumeMode))
	}
	if c.Spec.Selector != nil && !selects(c.Spec.Selector, v.Labels) {
		return "does not match the claim's selector"
	}
	return ""
}

func volumeMode(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

func namedVolume(s *Snapshot, c *corev1.PersistentVolumeClaim) []Finding {
	ref := Ref{"PersistentVolume", "", c.Spec.VolumeName}
	v, presence := get[*corev1.PersistentVolume](s, "", c.Spec.VolumeName)
	switch {
	case presence == Absent:
		return []Finding{linked(causeClaimVolume, "it names "+ref.String()+", which does not exist.", Link{Object: ref})}
	case presence == Found && mismatch(v, c) != "":
		return one(causeClaimVolume, "it names "+ref.String()+", which "+mismatch(v, c)+".", "Name another volume in a new claim, or correct the volume.")
	}
	return nil
}

func claimResize(c *corev1.PersistentVolumeClaim) []Finding {
	for _, condition := range c.Status.Conditions {
		if condition.Type == corev1.PersistentVolumeClaimFileSystemResizePending && condition.Status == corev1.ConditionTrue {
			return one(causeClaimResize, "its volume has grown, and its file system grows when a pod mounts it.", "Start a pod that uses it.")
		}
		if condition.Type == corev1.PersistentVolumeClaimControllerResizeError && condition.Status == corev1.ConditionTrue {
			return one(causeClaimResize, "its volume cannot grow: "+oneLine(condition.Message), "Read the log of the driver's resizer.")
		}
	}
	return nil
}

func hasConsumer(s *Snapshot, c *corev1.PersistentVolumeClaim) bool {
	pods, ok := list[*corev1.Pod](s, c.Namespace)
	return !ok || slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return slices.Contains(claimNames(p), c.Name) && !podOver(p) })
}

// volumePhase explains a volume that no claim can use.
func volumePhase(_ *Snapshot, v *corev1.PersistentVolume) []Finding {
	switch v.Status.Phase {
	case corev1.VolumeReleased:
		f := one(causeReleased, "its claim was deleted, and its data is kept (reclaim policy "+string(v.Spec.PersistentVolumeReclaimPolicy)+"): no new claim may use it.",
			"Save the data, then delete the volume; or free it: kubectl patch pv "+v.Name+` -p '{"spec":{"claimRef":null}}'.`)
		if r := v.Spec.ClaimRef; r != nil {
			f[0].Evidence = []Fact{{Text: "its claim was " + r.Namespace + "/" + r.Name}}
		}
		return f
	case corev1.VolumeFailed:
		return one(causeVolumeFailed, "it cannot be reclaimed: "+oneLine(v.Status.Message), "Delete the volume after its data is saved.")
	}
	return nil
}

// deviceClaim explains a resource claim that is not allocated.
func deviceClaim(s *Snapshot, c *resourcev1.ResourceClaim) []Finding {
	if c.Status.Allocation != nil {
		return nil
	}
	for _, r := range c.Spec.Devices.Requests {
		if r.Exactly == nil {
			continue
		}
		name := r.Exactly.DeviceClassName
		if _, presence := get[*resourcev1.DeviceClass](s, "", name); presence == Absent {
			return []Finding{linked(causeDeviceClass, "its request "+r.Name+" names the DeviceClass "+name+", which does not exist.", Link{Object: Ref{"DeviceClass", "", name}})}
		}
	}
	offers, ok := list[*resourcev1.ResourceSlice](s, "")
	if ok && len(offers) == 0 {
		return one(causeNoDevices, "no node offers any device: there is no ResourceSlice.", "Install the DRA driver of the devices.")
	}
	return one(causeDevicesTaken, "no devices are allocated to it.", "Wait until other claims are freed, or change its requests and selectors.")
}

// deviceClaimBlocks reports whether a resource claim is missing, or whether no node has what it
// asks for.
func deviceClaimBlocks(s *Snapshot, ref Ref) bool {
	c, presence := get[*resourcev1.ResourceClaim](s, ref.Namespace, ref.Name)
	if presence != Found {
		return presence == Absent
	}
	return slices.ContainsFunc(deviceClaim(s, c), func(f Finding) bool { return f.Cause != causeDevicesTaken })
}
