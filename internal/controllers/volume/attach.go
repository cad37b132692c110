package volume

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// AttachDetach requests the attachment of volumes to the nodes whose pods use them, and their
// detachment when no pod does. It creates and deletes VolumeAttachments, on which the attacher of
// the CSI driver acts. Only CSI volumes are attached.
var AttachDetach = controller.Starter{Name: "persistentvolume-attach-detach-controller", Account: "attachdetach-controller", EventSource: "attachdetach-controller", Run: runAttachDetach}

const (
	byNode = "volume-node"
	// attachRetry is the delay before a node is checked again if no event will tell that an
	// obstacle is gone.
	attachRetry = 5 * time.Second
	// unmountTimeout is the time that a node which is not ready gets to unmount a volume. Then the
	// volume is detached nevertheless.
	unmountTimeout = 6 * time.Minute
)

type attacher struct {
	env         controller.Env
	pods        client.ViewOf[*corev1.Pod]
	claims      client.ViewOf[*corev1.PersistentVolumeClaim]
	volumes     client.ViewOf[*corev1.PersistentVolume]
	nodes       client.ViewOf[*corev1.Node]
	drivers     client.ViewOf[*storagev1.CSIDriver]
	attachments client.ViewOf[*storagev1.VolumeAttachment]

	mu sync.Mutex // guards what follows
	// unwanted holds since when no pod uses an attached volume, by the attachment's name.
	unwanted map[string]time.Time
}

func runAttachDetach(ctx context.Context, env controller.Env) (err error) {
	c := &attacher{env: env, unwanted: map[string]time.Time{}}
	if c.attachments, err = client.Open[*storagev1.VolumeAttachment](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open volume attachments: %w", err)
	}
	if c.pods, err = client.Open[*corev1.Pod](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	if c.claims, err = client.Open[*corev1.PersistentVolumeClaim](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open persistent volume claims: %w", err)
	}
	if c.volumes, err = client.Open[*corev1.PersistentVolume](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open persistent volumes: %w", err)
	}
	if c.nodes, err = client.Open[*corev1.Node](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open nodes: %w", err)
	}
	if c.drivers, err = client.Open[*storagev1.CSIDriver](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open CSI drivers: %w", err)
	}
	controller.IndexPodsByNode(c.pods)
	c.pods.AddIndex(byClaim, claimsOf)
	c.attachments.AddIndex(byNode, func(a *storagev1.VolumeAttachment) []string { return []string{a.Spec.NodeName} })
	// A key is a node's name.
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "persistentvolume-attach-detach-controller",
		Inputs: []controller.Input{
			controller.On(c.nodes, func(e client.TypedEvent[*corev1.Node]) []controller.Key {
				if e.Type == client.Modified && slices.Equal(e.Old.Status.VolumesInUse, e.Object.Status.VolumesInUse) &&
					outOfService(e.Old) == outOfService(e.Object) && nodeReady(e.Old) == nodeReady(e.Object) {
					return nil
				}
				return []controller.Key{{Name: e.Object.Name}}
			}),
			controller.On(c.pods, func(e client.TypedEvent[*corev1.Pod]) []controller.Key {
				settled := e.Type == client.Modified && e.Old.Spec.NodeName == e.Object.Spec.NodeName && controller.PodEnded(e.Old) == controller.PodEnded(e.Object)
				if settled || e.Object.Spec.NodeName == "" || len(claimsOf(e.Object)) == 0 {
					return nil
				}
				return []controller.Key{{Name: e.Object.Spec.NodeName}}
			}),
			controller.On(c.claims, func(e client.TypedEvent[*corev1.PersistentVolumeClaim]) []controller.Key {
				return c.nodesUsing(e.Object.Namespace, e.Object.Name)
			}),
			controller.On(c.volumes, func(e client.TypedEvent[*corev1.PersistentVolume]) []controller.Key {
				if claim := e.Object.Spec.ClaimRef; claim != nil {
					return c.nodesUsing(claim.Namespace, claim.Name)
				}
				return nil
			}),
			controller.On(c.drivers, func(e client.TypedEvent[*storagev1.CSIDriver]) []controller.Key {
				return c.allNodes() // its volumes may need attachment, or no longer
			}),
			controller.On(c.attachments, func(e client.TypedEvent[*storagev1.VolumeAttachment]) []controller.Key {
				return []controller.Key{{Name: e.Object.Spec.NodeName}}
			}),
		},
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

// nodesUsing returns the nodes whose pods use a claim.
func (c *attacher) nodesUsing(namespace, claim string) []controller.Key {
	var keys []controller.Key
	for _, p := range c.pods.ByIndex(byClaim, namespace+"/"+claim) {
		if p.Spec.NodeName != "" {
			keys = append(keys, controller.Key{Name: p.Spec.NodeName})
		}
	}
	return keys
}

// allNodes returns the keys of all nodes.
func (c *attacher) allNodes() []controller.Key {
	var keys []controller.Key
	for _, n := range c.nodes.List("", nil) {
		keys = append(keys, controller.Key{Name: n.Name})
	}
	return keys
}

// wantedVolume is a volume that the node's pods use.
type wantedVolume struct {
	volume *corev1.PersistentVolume
	pod    *corev1.Pod
}

// attachmentName returns upstream's name for the attachment of a volume to a node. The kubelet
// looks for this name.
func attachmentName(csi *corev1.CSIPersistentVolumeSource, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(csi.VolumeHandle+csi.Driver+node)))
}

// uniqueName returns the volume's name in a node's status.
func uniqueName(csi *corev1.CSIPersistentVolumeSource) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + csi.Driver + "^" + csi.VolumeHandle)
}

func (c *attacher) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	wanted := c.wanted(key.Name)
	again := false
	have := map[string]*storagev1.VolumeAttachment{}
	for _, a := range c.attachments.ByIndex(byNode, key.Name) {
		have[a.Name] = a
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if have[name] != nil {
			continue
		}
		blocked, err := c.attach(ctx, name, key.Name, wanted[name])
		if err != nil {
			return controller.Result{}, err
		}
		again = again || blocked
	}
	node, _ := c.nodes.Get("", key.Name)
	var result controller.Result
	if again {
		result.After = attachRetry
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		a := have[name]
		if _, ok := wanted[name]; ok || a.DeletionTimestamp != nil || !c.ours(a) {
			c.want(name)
			continue
		}
		wait, detach := c.mayDetach(node, a)
		if !detach {
			if wait > 0 && (result.After == 0 || wait < result.After) {
				result.After = wait
			}
			continue // a change of the node's status queues it again, too
		}
		if err := client.Delete[*storagev1.VolumeAttachment](ctx, c.env.Client, "", name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return controller.Result{}, fmt.Errorf("detach %s: %w", name, err)
		}
		c.want(name)
	}
	return result, c.report(ctx, node)
}

// want forgets since when a volume is unwanted.
func (c *attacher) want(attachment string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unwanted, attachment)
}

// mayDetach reports whether an unwanted volume may be detached. A mounted volume must stay, because
// a pod that still runs could write to it while another node does. A node that is not ready may be
// dead. After unmountTimeout it loses the volume. wait is the time until then, if it is not over.
func (c *attacher) mayDetach(node *corev1.Node, a *storagev1.VolumeAttachment) (wait time.Duration, detach bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.env.Now()
	since, found := c.unwanted[a.Name]
	if !found {
		since = now
		c.unwanted[a.Name] = now
	}
	if !c.inUse(node, a) {
		return 0, true
	}
	if nodeReady(node) {
		return 0, false
	}
	if wait = since.Add(unmountTimeout).Sub(now); wait > 0 {
		return wait, false
	}
	c.env.Logger().Warn("a volume is detached by force: its node is not ready and has not unmounted it", "node", node.Name, "attachment", a.Name, "after", now.Sub(since))
	return 0, true
}

// outOfService reports whether an administrator has declared that the node is off.
func outOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// wanted returns the volumes that have to be attached to a node, by the names of their attachments.
func (c *attacher) wanted(node string) map[string]wantedVolume {
	out := map[string]wantedVolume{}
	for _, p := range controller.PodsOnNode(c.pods, node) {
		if controller.PodEnded(p) {
			continue
		}
		for _, key := range claimsOf(p) {
			namespace, name, _ := strings.Cut(key, "/")
			claim, ok := c.claims.Get(namespace, name)
			if !ok || claim.Status.Phase != corev1.ClaimBound {
				continue
			}
			v, ok := c.volumes.Get("", claim.Spec.VolumeName)
			if ok && v.Spec.CSI != nil && c.attachable(v.Spec.CSI.Driver) {
				out[attachmentName(v.Spec.CSI, node)] = wantedVolume{v, p}
			}
		}
	}
	return out
}

// attachable reports whether the driver's volumes need attachment, which is the default.
func (c *attacher) attachable(driver string) bool {
	d, ok := c.drivers.Get("", driver)
	return !ok || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
}

// attach requests the attachment of a volume. blocked is true while another node holds a volume
// that only one node may use.
func (c *attacher) attach(ctx context.Context, name, node string, w wantedVolume) (blocked bool, err error) {
	if other := c.otherNode(w.volume, node); other != "" {
		c.env.Events.Eventf(w.pod, nil, corev1.EventTypeWarning, "FailedAttachVolume", "Attach",
			"Multi-Attach error for volume %q Volume is already exclusively attached to one node and can't be attached to another", w.volume.Name)
		return true, nil
	}
	_, err = client.Create(ctx, c.env.Client, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: w.volume.Spec.CSI.Driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &w.volume.Name}},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		c.env.Events.Eventf(w.pod, nil, corev1.EventTypeWarning, "FailedAttachVolume", "Attach", "AttachVolume.Attach failed for volume %q : %v", w.volume.Name, err)
		return false, fmt.Errorf("attach %s to %s: %w", w.volume.Name, node, err)
	}
	return false, nil
}

// otherNode returns another node that holds the volume if only one may, else "".
func (c *attacher) otherNode(v *corev1.PersistentVolume, node string) string {
	for _, mode := range v.Spec.AccessModes {
		if mode == corev1.ReadWriteMany || mode == corev1.ReadOnlyMany {
			return ""
		}
	}
	for _, a := range c.attachments.List("", nil) {
		if source := a.Spec.Source.PersistentVolumeName; source != nil && *source == v.Name && a.Spec.NodeName != node {
			return a.Spec.NodeName
		}
	}
	return ""
}

// ours reports whether the attachment has a name given by this controller. Other attachments belong
// to their creators.
func (c *attacher) ours(a *storagev1.VolumeAttachment) bool {
	v := c.volumeOf(a)
	if v == nil {
		// Its volume is gone.
		return a.Spec.Source.PersistentVolumeName != nil && strings.HasPrefix(a.Name, "csi-")
	}
	return a.Name == attachmentName(v.Spec.CSI, a.Spec.NodeName)
}

func (c *attacher) volumeOf(a *storagev1.VolumeAttachment) *corev1.PersistentVolume {
	if a.Spec.Source.PersistentVolumeName == nil {
		return nil
	}
	v, ok := c.volumes.Get("", *a.Spec.Source.PersistentVolumeName)
	if !ok || v.Spec.CSI == nil {
		return nil
	}
	return v
}

// inUse reports whether the node's status lists the volume as mounted. The status of a node that is
// gone or declared out of service does not count.
func (c *attacher) inUse(node *corev1.Node, a *storagev1.VolumeAttachment) bool {
	v := c.volumeOf(a)
	if node == nil || v == nil || outOfService(node) {
		return false
	}
	return slices.Contains(node.Status.VolumesInUse, uniqueName(v.Spec.CSI))
}

// report writes the attached volumes into the node's status, where upstream's kubelets look for
// them.
func (c *attacher) report(ctx context.Context, node *corev1.Node) error {
	if node == nil {
		return nil
	}
	var attached []corev1.AttachedVolume
	for _, a := range c.attachments.ByIndex(byNode, node.Name) {
		if v := c.volumeOf(a); v != nil && a.Status.Attached {
			attached = append(attached, corev1.AttachedVolume{Name: uniqueName(v.Spec.CSI)})
		}
	}
	slices.SortFunc(attached, func(a, b corev1.AttachedVolume) int { return strings.Compare(string(a.Name), string(b.Name)) })
	if slices.Equal(attached, node.Status.VolumesAttached) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"volumesAttached": attached}})
	if err != nil {
		return err
	}
	_, err = client.Patch[*corev1.Node](ctx, c.env.Client, "", node.Name, types.MergePatchType, patch, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
