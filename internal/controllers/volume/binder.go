package volume

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	volumehelper "k8s.io/component-helpers/storage/volume"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/volume/local"
)

// Binder binds claims to persistent volumes. It requests a volume from the class's provisioner if
// none fits, and applies the reclaim policy to volumes whose claim is gone.
var Binder = controller.Starter{Name: "persistentvolume-binder-controller", Account: "persistent-volume-binder", EventSource: "persistentvolume-controller", Run: runBinder}

// Annotations of claims and volumes that record the binding.
const (
	bindCompleted     = "pv.kubernetes.io/bind-completed"
	boundByController = "pv.kubernetes.io/bound-by-controller"
	provisionedBy     = "pv.kubernetes.io/provisioned-by"
	provisioner       = "volume.kubernetes.io/storage-provisioner"
	provisionerBeta   = "volume.beta.kubernetes.io/storage-provisioner"
	selectedNode      = "volume.kubernetes.io/selected-node"
	noProvisioner     = "kubernetes.io/no-provisioner"
)

// binder reconciles keys of claims ("namespace/name") and of volumes (no namespace).
type binder struct {
	env     controller.Env
	claims  client.ViewOf[*corev1.PersistentVolumeClaim]
	volumes client.ViewOf[*corev1.PersistentVolume]
	classes client.ViewOf[*storagev1.StorageClass]

	// pairs are mutexes by claim: a claim and its volume are not reconciled at the same time.
	pairs [64]sync.Mutex
	// chosen has the volumes that claims have found but not named yet.
	mu     sync.Mutex
	chosen map[string]bool
}

// binderWorkers is the number of keys at a time. Each claim takes four writes, one after the other.
const binderWorkers = 10

func runBinder(ctx context.Context, env controller.Env) error {
	claims, err := client.Open[*corev1.PersistentVolumeClaim](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open persistent volume claims: %w", err)
	}
	volumes, err := client.Open[*corev1.PersistentVolume](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open persistent volumes: %w", err)
	}
	classes, err := client.Open[*storagev1.StorageClass](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open storage classes: %w", err)
	}
	b := &binder{env: env, claims: claims, volumes: volumes, classes: classes, chosen: map[string]bool{}}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "persistentvolume-binder-controller",
		Inputs: []controller.Input{
			controller.On(claims, func(e client.TypedEvent[*corev1.PersistentVolumeClaim]) []controller.Key {
				keys := []controller.Key{controller.KeyOf(e.Object)}
				if e.Object.Spec.VolumeName != "" {
					keys = append(keys, controller.Key{Name: e.Object.Spec.VolumeName})
				}
				return keys
			}),
			controller.On(volumes, func(e client.TypedEvent[*corev1.PersistentVolume]) []controller.Key {
				keys := []controller.Key{{Name: e.Object.Name}}
				if ref := e.Object.Spec.ClaimRef; ref != nil {
					return append(keys, controller.Key{Namespace: ref.Namespace, Name: ref.Name})
				}
				return append(keys, b.pending()...)
			}),
			controller.On(classes, func(client.TypedEvent[*storagev1.StorageClass]) []controller.Key { return b.pending() }),
		},
		Workers: binderWorkers, Reconcile: b.reconcile,
		// Events expire, and a pending claim must always have one that explains it
		Resync: 15 * time.Minute,
	}
	return loop.Run(ctx)
}

// pending returns the claims that wait for a volume.
func (b *binder) pending() []controller.Key {
	var keys []controller.Key
	for _, c := range b.claims.List("", nil) {
		if c.Annotations[bindCompleted] == "" {
			keys = append(keys, controller.KeyOf(c))
		}
	}
	return keys
}

func (b *binder) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	var err error
	if pair := b.pairOf(key); pair != nil {
		pair.Lock()
		defer pair.Unlock()
	}
	if key.Namespace == "" {
		if v, ok := b.volumes.Get("", key.Name); ok {
			err = b.volume(ctx, v)
		}
	} else if c, ok := b.claims.Get(key.Namespace, key.Name); ok {
		err = b.claim(ctx, c)
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return controller.Result{}, err
}

// pairOf returns the mutex of a claim, or of the claim that a volume names; nil if it names none.
func (b *binder) pairOf(key controller.Key) *sync.Mutex {
	if key.Namespace == "" {
		v, ok := b.volumes.Get("", key.Name)
		if !ok || v.Spec.ClaimRef == nil {
			return nil
		}
		key = controller.Key{Namespace: v.Spec.ClaimRef.Namespace, Name: v.Spec.ClaimRef.Name}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key.Namespace + "/" + key.Name))
	return &b.pairs[h.Sum32()%uint32(len(b.pairs))]
}

// claim takes the next step for one claim.
func (b *binder) claim(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	switch {
	case c.Annotations[bindCompleted] != "":
		return b.boundClaim(ctx, c)
	case c.DeletionTimestamp != nil:
		return nil
	case c.Spec.VolumeName == "":
		return b.unboundClaim(ctx, c)
	}
	// The user or the scheduler has chosen the volume.
	v, ok := b.volumes.Get("", c.Spec.VolumeName)
	if !ok {
		return b.claimPhase(ctx, c, corev1.ClaimPending, nil)
	}
	if v.Spec.ClaimRef == nil {
		if wrong := unfit(v, c); wrong != "" {
			b.event(c, corev1.EventTypeWarning, "VolumeMismatch", "Cannot bind to requested volume %q: %s", v.Name, wrong)
			return b.claimPhase(ctx, c, corev1.ClaimPending, nil)
		}
		return b.bind(ctx, c, v)
	}
	if refersTo(v, c) {
		return b.bind(ctx, c, v)
	}
	b.event(c, corev1.EventTypeWarning, "FailedBinding", "volume %q already bound to a different claim.", v.Name)
	return b.claimPhase(ctx, c, corev1.ClaimPending, nil)
}

func (b *binder) event(obj client.Object, eventType, reason, note string, args ...any) {
	b.env.Events.Eventf(obj, nil, eventType, reason, "Bind", note, args...)
}

// boundClaim checks that the volume of a bound claim is still bound to it.
func (b *binder) boundClaim(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if c.Spec.VolumeName == "" {
		return b.markLost(ctx, c, "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	}
	v, ok := b.volumes.Get("", c.Spec.VolumeName)
	switch {
	case !ok:
		return b.markLost(ctx, c, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.Spec.ClaimRef == nil || (refersTo(v, c) && v.Spec.ClaimRef.UID == ""):
		return b.bind(ctx, c, v)
	case v.Spec.ClaimRef.UID == c.UID:
		return b.bind(ctx, c, v) // complete, or a step is missing
	}
	return b.markLost(ctx, c, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

func (b *binder) markLost(ctx context.Context, c *corev1.PersistentVolumeClaim, reason, note string) error {
	if c.Status.Phase == corev1.ClaimLost {
		return nil
	}
	b.event(c, corev1.EventTypeWarning, reason, "%s", note)
	return b.claimPhase(ctx, c, corev1.ClaimLost, nil)
}

// unboundClaim finds a volume for the claim, or requests one.
func (b *binder) unboundClaim(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	className := volumehelper.GetPersistentVolumeClaimClass(c)
	class, hasClass := b.classes.Get("", className)
	delayed := hasClass && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	if v := b.choose(c, delayed); v != nil {
		defer b.free(v)
		return b.bind(ctx, c, v)
	}
	switch {
	case delayed && c.Annotations[selectedNode] == "":
		b.event(c, corev1.EventTypeNormal, "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case className == "":
		b.event(c, corev1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set: "+
			"create a PersistentVolume, or install a provisioner and name its StorageClass in spec.storageClassName")
	case !hasClass:
		b.event(c, corev1.EventTypeWarning, "ProvisioningFailed", "storageclass.storage.k8s.io %q not found", className)
	case class.Provisioner == noProvisioner:
		b.event(c, corev1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	default:
		return b.requestVolume(ctx, c, class)
	}
	return b.claimPhase(ctx, c, corev1.ClaimPending, nil)
}

// requestVolume requests a volume from the class's provisioner by annotations.
func (b *binder) requestVolume(ctx context.Context, c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	if c.Annotations[provisioner] != class.Provisioner {
		changed := c.DeepCopy()
		if changed.Annotations == nil {
			changed.Annotations = map[string]string{}
		}
		changed.Annotations[provisioner], changed.Annotations[provisionerBeta] = class.Provisioner, class.Provisioner
		updated, err := client.Update(ctx, b.env.Client, changed)
		if err != nil {
			return err
		}
		c = updated
	}
	b.event(c, corev1.EventTypeNormal, "ExternalProvisioning", "Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. "+
		"If volume creation is delayed, please verify that the provisioner is running and correctly registered.", class.Provisioner)
	return b.claimPhase(ctx, c, corev1.ClaimPending, nil)
}

// choose finds a volume for the claim that no other claim has chosen, and keeps it for the claim
// until free.
func (b *binder) choose(c *corev1.PersistentVolumeClaim, delayed bool) *corev1.PersistentVolume {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.find(c, delayed)
	if v != nil {
		b.chosen[v.Name] = true
	}
	return v
}

// free ends choose. If the claim got the volume, the View shows it.
func (b *binder) free(v *corev1.PersistentVolume) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.chosen, v.Name)
}

// find returns the smallest volume that fits; a volume reserved for the claim comes first. A
// delayed claim takes only a reserved volume, since the scheduler chooses it.
func (b *binder) find(c *corev1.PersistentVolumeClaim, delayed bool) *corev1.PersistentVolume {
	var best *corev1.PersistentVolume
	for _, v := range b.volumes.List("", nil) {
		if v.DeletionTimestamp != nil || b.chosen[v.Name] || v.Annotations[local.PendingAnnotation] == local.PendingMake {
			continue // a pending volume does not exist on its node yet
		}
		if refersTo(v, c) {
			if unfit(v, c) == "" {
				return v
			}
			continue
		}
		if delayed || v.Spec.ClaimRef != nil || v.Status.Phase != corev1.VolumeAvailable && v.Status.Phase != corev1.VolumePending && v.Status.Phase != "" || unfit(v, c) != "" {
			continue
		}
		if best == nil || v.Spec.Capacity.Storage().Cmp(*best.Spec.Capacity.Storage()) < 0 {
			best = v
		}
	}
	return best
}

// refersTo reports whether the volume is bound to the claim or reserved for it.
func refersTo(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Namespace == c.Namespace && ref.Name == c.Name && (ref.UID == "" || ref.UID == c.UID)
}

// unfit returns the reason why the volume cannot serve the claim, or "".
func unfit(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) string {
	if want, have := c.Spec.Resources.Requests.Storage(), v.Spec.Capacity.Storage(); have.Cmp(*want) < 0 {
		return "requested PV is too small"
	}
	if volumehelper.GetPersistentVolumeClass(v) != volumehelper.GetPersistentVolumeClaimClass(c) {
		return "storageClassName does not match"
	}
	if mode(v.Spec.VolumeMode) != mode(c.Spec.VolumeMode) {
		return "incompatible volumeMode"
	}
	for _, m := range c.Spec.AccessModes {
		if !slices.Contains(v.Spec.AccessModes, m) {
			return "incompatible accessMode"
		}
	}
	if name := c.Spec.VolumeAttributesClassName; name != nil && *name != "" && (v.Spec.VolumeAttributesClassName == nil || *v.Spec.VolumeAttributesClassName != *name) {
		return "volumeAttributesClassName does not match"
	}
	if !selects(c.Spec.Selector, v.Labels) {
		return "labels do not match the claim's selector"
	}
	return ""
}

func mode(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

// claimPhase writes a claim's phase and, if it has a volume, the claim's capacity and access modes.
func (b *binder) claimPhase(ctx context.Context, c *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase, v *corev1.PersistentVolume) error {
	changed := c.DeepCopy()
	changed.Status.Phase = phase
	if v != nil {
		changed.Status.AccessModes = v.Spec.AccessModes
		if _, ok := changed.Status.Capacity[corev1.ResourceStorage]; !ok || changed.Status.Phase != c.Status.Phase {
			changed.Status.Capacity = v.Spec.Capacity.DeepCopy()
		}
		changed.Status.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
	} else {
		changed.Status.AccessModes, changed.Status.Capacity = nil, nil
	}
	if equality.Semantic.DeepEqual(c.Status, changed.Status) {
		return nil
	}
	_, err := client.UpdateStatus(ctx, b.env.Client, changed)
	return err
}
