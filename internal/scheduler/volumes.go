package scheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	volumehelper "k8s.io/component-helpers/storage/volume"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// bindVolumesTimeout is how long a pod waits for its volumes before it is decided again.
// pollInterval is how often it checks without news.
const (
	bindVolumesTimeout = 10 * time.Minute
	pollInterval       = time.Second
)

// volumeBinder carries out the decisions of the VolumeBinding plugin: a claim gets the volume that
// was found, or the node for which to provision one. The pod's binding waits until the claims are
// bound. The controller of claims and provisioners do the rest.
type volumeBinder struct {
	client  client.Interface
	storage *storage
	pods    func(namespace, name string) (*corev1.Pod, bool)
	nodes   func(name string) (*corev1.Node, bool)
}

// reservedVolumes has the objects that Reserve assumed and PreBind writes.
type reservedVolumes struct {
	found   framework.VolumesFor
	volumes []*corev1.PersistentVolume
	claims  []*corev1.PersistentVolumeClaim
}

// keys are those of the objects whose changes may end the wait. A provisioner names a new volume in
// the claim once the volume exists.
func (r *reservedVolumes) keys() (keys []string) {
	for _, s := range r.found.Static {
		keys = append(keys, claimKey(s.Claim.Namespace, s.Claim.Name), volumeKey(s.Volume.Name))
	}
	for _, c := range r.found.Provision {
		keys = append(keys, claimKey(c.Namespace, c.Name))
	}
	return keys
}

const reservedKey = framework.VolumeBinding + "/reserved"

func (*volumeBinder) Name() string { return framework.VolumeBinding }

// Reserve makes the volumes unavailable to later decisions.
func (b *volumeBinder) Reserve(_ context.Context, state framework.State, _ *corev1.Pod, node string) *framework.Status {
	decisions, ok := state[framework.VolumeBinding].(framework.VolumeDecisions)
	if !ok {
		return nil
	}
	r := &reservedVolumes{found: decisions.On(node)}
	for _, s := range r.found.Static {
		v, changed, err := volumehelper.GetBindVolumeToClaim(s.Volume, s.Claim)
		if err != nil {
			return framework.Fail(err)
		}
		if changed {
			r.volumes = append(r.volumes, v)
		}
	}
	for _, c := range r.found.Provision {
		if c.Annotations[volumehelper.AnnSelectedNode] == node {
			continue
		}
		c = c.DeepCopy()
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[volumehelper.AnnSelectedNode] = node
		r.claims = append(r.claims, c)
	}
	b.storage.assume(r.volumes, r.claims)
	state[reservedKey] = r
	return nil
}

// Unreserve ends the assumptions. Written objects stay: the next attempt finds them.
func (b *volumeBinder) Unreserve(_ context.Context, state framework.State, _ *corev1.Pod, _ string) {
	if r, ok := state[reservedKey].(*reservedVolumes); ok {
		b.storage.forget(r.volumes, r.claims)
	}
}

// PreBindPreFlight implements framework.PreBindPlugin: claims that are already bound need nothing.
func (b *volumeBinder) PreBindPreFlight(state framework.State, _ *corev1.Pod, _ string) bool {
	r, ok := state[reservedKey].(*reservedVolumes)
	return ok && len(r.found.Static)+len(r.found.Provision) > 0
}

// bind writes the reserved objects and waits until all claims are bound.
func (b *volumeBinder) bind(ctx context.Context, state framework.State, pod *corev1.Pod, node string, timeout time.Duration) *framework.Status {
	r, ok := state[reservedKey].(*reservedVolumes)
	if !ok || len(r.found.Static)+len(r.found.Provision) == 0 {
		return nil
	}
	if err := b.write(ctx, r); err != nil {
		return framework.Fail(fmt.Errorf("binding volumes: %w", err))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	changed, stop := b.storage.changes.expect(r.keys()...)
	defer stop()
	for {
		bound, err := b.bound(r, pod, node)
		if err != nil {
			return framework.Fail(fmt.Errorf("binding volumes: %w", err))
		}
		if bound {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return framework.Fail(fmt.Errorf("binding volumes: %w", ctx.Err()))
		}
	}
}

func (b *volumeBinder) write(ctx context.Context, r *reservedVolumes) error {
	for _, v := range r.volumes {
		if _, err := client.Update(ctx, b.client, v); err != nil {
			return err
		}
	}
	for _, c := range r.claims {
		if _, err := client.Update(ctx, b.client, c); err != nil {
			return err
		}
	}
	b.storage.forget(r.volumes, r.claims) // the Views show the objects now
	return nil
}

// bound reports whether all claims are bound. An error means that they never will be, and the pod
// must be decided again.
func (b *volumeBinder) bound(r *reservedVolumes, pod *corev1.Pod, nodeName string) (bool, error) {
	if p, ok := b.pods(pod.Namespace, pod.Name); !ok || p.UID != pod.UID {
		return false, fmt.Errorf("pod does not exist any more")
	}
	node, ok := b.nodes(nodeName)
	if !ok {
		return false, fmt.Errorf("failed to get node %q", nodeName)
	}
	all := true
	for _, s := range r.found.Static {
		v, ok := b.storage.Volume(s.Volume.Name)
		if !ok {
			return false, fmt.Errorf("failed to get pv %q", s.Volume.Name)
		}
		if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != s.Claim.UID {
			return false, fmt.Errorf("pv %q is not bound to claim %s/%s any more", v.Name, s.Claim.Namespace, s.Claim.Name)
		}
		if err := volumehelper.CheckNodeAffinity(v, node.Labels); err != nil {
			return false, fmt.Errorf("pv %q node affinity doesn't match node %q: %w", v.Name, nodeName, err)
		}
		c, ok := b.storage.Claim(s.Claim.Namespace, s.Claim.Name)
		if !ok || c.UID != s.Claim.UID {
			return false, fmt.Errorf("persistentvolumeclaim %q not found", s.Claim.Name)
		}
		all = all && isBound(c)
	}
	for _, wanted := range r.found.Provision {
		provisioned, err := b.provisioned(wanted, node)
		if err != nil {
			return false, err
		}
		all = all && provisioned
	}
	return all, nil
}

func (b *volumeBinder) provisioned(wanted *corev1.PersistentVolumeClaim, node *corev1.Node) (bool, error) {
	c, ok := b.storage.Claim(wanted.Namespace, wanted.Name)
	if !ok || c.UID != wanted.UID {
		return false, fmt.Errorf("persistentvolumeclaim %q not found", wanted.Name)
	}
	if c.Annotations[volumehelper.AnnSelectedNode] != node.Name {
		// Its provisioner removed the node's name: there is no room for the volume.
		return false, fmt.Errorf("provisioning failed for PVC %q", c.Name)
	}
	if c.Spec.VolumeName == "" {
		return false, nil
	}
	v, ok := b.storage.Volume(c.Spec.VolumeName)
	if !ok {
		return false, nil
	}
	if err := volumehelper.CheckNodeAffinity(v, node.Labels); err != nil {
		return false, fmt.Errorf("pv %q node affinity doesn't match node %q: %w", v.Name, node.Name, err)
	}
	return isBound(c), nil
}

func isBound(c *corev1.PersistentVolumeClaim) bool {
	_, complete := c.Annotations[volumehelper.AnnBindCompleted]
	// The node agent mounts a claim only in this phase.
	return c.Spec.VolumeName != "" && complete && c.Status.Phase == corev1.ClaimBound
}
