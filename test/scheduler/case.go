package scheduler

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"
)

// Case is a cluster and the pod to decide about.
type Case struct {
	Pod   *corev1.Pod    `json:"pod"`
	Nodes []*corev1.Node `json:"nodes,omitempty"`
	// Pods are bound to a node, or nominated for one.
	Pods        []*corev1.Pod                   `json:"pods,omitempty"`
	Namespaces  []*corev1.Namespace             `json:"namespaces,omitempty"`
	Services    []*corev1.Service               `json:"services,omitempty"`
	ReplicaSets []*appsv1.ReplicaSet            `json:"replicaSets,omitempty"`
	Budgets     []*policyv1.PodDisruptionBudget `json:"budgets,omitempty"`

	Claims      []*corev1.PersistentVolumeClaim `json:"claims,omitempty"`
	Volumes     []*corev1.PersistentVolume      `json:"volumes,omitempty"`
	Classes     []*storagev1.StorageClass       `json:"classes,omitempty"`
	CSINodes    []*storagev1.CSINode            `json:"csiNodes,omitempty"`
	CSIDrivers  []*storagev1.CSIDriver          `json:"csiDrivers,omitempty"`
	Capacities  []*storagev1.CSIStorageCapacity `json:"capacities,omitempty"`
	Attachments []*storagev1.VolumeAttachment   `json:"attachments,omitempty"`

	DeviceClaims  []*resourcev1.ResourceClaim `json:"deviceClaims,omitempty"`
	DeviceClasses []*resourcev1.DeviceClass   `json:"deviceClasses,omitempty"`
	Slices        []*resourcev1.ResourceSlice `json:"slices,omitempty"`
}

// YAML returns the case as text.
func (c *Case) YAML() string {
	text, err := yaml.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Copy returns a deep copy.
func (c *Case) Copy() *Case {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // the types have no values that JSON lacks
	}
	var out Case
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return &out
}

// hasDevices reports whether the pod may get devices.
func (c *Case) hasDevices() bool { return len(c.DeviceClasses) > 0 }

// nominated reports whether the pod waits for a node that is being freed for it.
func nominated(p *corev1.Pod) bool { return p.Spec.NodeName == "" && p.Status.NominatedNodeName != "" }
