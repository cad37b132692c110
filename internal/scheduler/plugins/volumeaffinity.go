package plugins

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	volumehelper "k8s.io/component-helpers/storage/volume"
)

// volumeReach is the compiled node affinity of a bound volume; nil reaches all nodes.
type volumeReach struct {
	selector *nodeaffinity.LazyErrorNodeSelector
	// fields means that a term selects fields. A volume's affinity sees only labels of a node.
	fields bool
	gone   bool // the volume does not exist
}

func reachOf(volume *corev1.PersistentVolume) *volumeReach {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil {
		return nil
	}
	return &volumeReach{
		selector: nodeaffinity.NewLazyErrorNodeSelector(affinity.Required),
		fields:   slices.ContainsFunc(affinity.Required.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool { return len(t.MatchFields) > 0 }),
	}
}

// includes reports whether the volume is usable on the node.
func (r *volumeReach) includes(node *corev1.Node) bool {
	if r == nil {
		return true
	}
	if r.fields {
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: node.Labels}}
	}
	match, err := r.selector.Match(node)
	return match && err == nil
}

// volumeCandidates are the volumes that a claim may get. Most volumes with node affinity name a
// label and its values, such as a host name: by the values, a node finds the few volumes for it.
type volumeCandidates struct {
	all     []*corev1.PersistentVolume
	byLabel map[string]map[string][]int // indexes in all, by key and value, ascending
	others  []int                       // to check on each node
}

// newVolumeCandidates indexes the volumes that the claims may get. A volume that names one of them
// is checked on each node: it refuses the nodes that it does not reach.
func newVolumeCandidates(volumes []*corev1.PersistentVolume, claims []*corev1.PersistentVolumeClaim) *volumeCandidates {
	c := &volumeCandidates{all: volumes, byLabel: map[string]map[string][]int{}}
	for i, volume := range volumes {
		named := volume.Spec.ClaimRef != nil
		if named && !slices.ContainsFunc(claims, func(claim *corev1.PersistentVolumeClaim) bool {
			return volumehelper.IsVolumeBoundToClaim(volume, claim)
		}) {
			continue
		}
		key, values := requiredNodeLabel(volume)
		if named || key == "" {
			c.others = append(c.others, i)
			continue
		}
		if c.byLabel[key] == nil {
			c.byLabel[key] = map[string][]int{}
		}
		for _, value := range values {
			if list := c.byLabel[key][value]; len(list) == 0 || list[len(list)-1] != i {
				c.byLabel[key][value] = append(list, i)
			}
		}
	}
	return c
}

// requiredNodeLabel returns the key of a label that the volume requires of a node, and the allowed
// values. The key is "" if there is no such label.
func requiredNodeLabel(volume *corev1.PersistentVolume) (key string, values []string) {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) != 1 {
		return "", nil
	}
	for _, e := range affinity.Required.NodeSelectorTerms[0].MatchExpressions {
		if e.Operator == corev1.NodeSelectorOpIn {
			return e.Key, e.Values
		}
	}
	return "", nil
}

// on returns the volumes that may reach the node, in their order.
func (c *volumeCandidates) on(node *corev1.Node) []*corev1.PersistentVolume {
	at := slices.Clone(c.others)
	for key, byValue := range c.byLabel {
		if value, ok := node.Labels[key]; ok {
			at = append(at, byValue[value]...)
		}
	}
	slices.Sort(at)
	found := make([]*corev1.PersistentVolume, len(at))
	for k, i := range at {
		found[k] = c.all[i]
	}
	return found
}
