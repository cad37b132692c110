package plugins

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// volumeZone keeps a pod in the zones and regions of its bound volumes' labels.
type volumeZone struct{ plugin }

// zoneLabels maps each label that counts to its current name.
var zoneLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelTopologyZone:            corev1.LabelTopologyZone,
	corev1.LabelTopologyRegion:          corev1.LabelTopologyRegion,
}

// zoneOfVolume is a requirement: a node's label must have one of the values.
type zoneOfVolume struct {
	label  string
	values sets.Set[string]
}

func (p volumeZone) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	if len(pod.Claims) == 0 || snapshot.Storage == nil {
		return nil, &framework.Status{Code: framework.Skip}
	}
	storage, err := snapshot.Storage()
	if err != nil {
		return nil, framework.Fail(err)
	}
	var zones []zoneOfVolume
	for _, ref := range pod.Claims {
		if ref.Ephemeral {
			continue // its volume is made where the pod runs
		}
		claim, ok := storage.Claim(pod.Pod.Namespace, ref.Name)
		switch {
		case !ok:
			return nil, framework.RefuseAlways(fmt.Sprintf("persistentvolumeclaim %q not found", ref.Name))
		case claim.Spec.VolumeName == "":
			continue // VolumeBinding decides about it
		}
		volume, ok := storage.Volume(claim.Spec.VolumeName)
		if !ok {
			return nil, framework.RefuseAlways(fmt.Sprintf("persistentvolume %q not found", claim.Spec.VolumeName))
		}
		for label := range zoneLabels {
			if value, ok := volume.Labels[label]; ok {
				zones = append(zones, zoneOfVolume{label, sets.New(strings.Split(value, "__")...)})
			}
		}
	}
	if len(zones) == 0 {
		return nil, &framework.Status{Code: framework.Skip}
	}
	state[p.Name()] = zones
	return nil, nil
}

func (p volumeZone) Filter(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	labelled := false
	for label := range zoneLabels {
		_, has := node.Node.Labels[label]
		labelled = labelled || has
	}
	if !labelled {
		return nil // a cluster without zones
	}
	for _, zone := range state[p.Name()].([]zoneOfVolume) {
		value, ok := node.Node.Labels[zone.label]
		if !ok {
			value, ok = node.Node.Labels[zoneLabels[zone.label]]
		}
		if !ok || !zone.values.Has(value) {
			return framework.RefuseAlways("node(s) had no available volume zone")
		}
	}
	return nil
}

func (volumeZone) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeLabels | framework.ClaimChanged | framework.VolumeChanged | framework.StorageClassChanged
}
