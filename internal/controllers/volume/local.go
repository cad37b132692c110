package volume

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	volumehelper "k8s.io/component-helpers/storage/volume"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/volume/local"
)

// Local provisions volumes on the disks of nodes, for classes whose provisioner is
// local.Provisioner. It makes the default class in a new cluster, if Config.LocalStorage is set.
// The nodes do the work on the disk; internal/volume/local describes the steps.
var Local = controller.Starter{Name: "local-volume-controller", Run: runLocal}

const byNodeOfVolume = "local-node"

// localVolumes reconciles keys of claims ("namespace/name"), of volumes (no namespace), and of
// nodes' capacities (in the namespace capacityKeys, which no object can have).
type localVolumes struct {
	env        controller.Env
	claims     client.ViewOf[*corev1.PersistentVolumeClaim]
	volumes    client.ViewOf[*corev1.PersistentVolume]
	classes    client.ViewOf[*storagev1.StorageClass]
	nodes      client.ViewOf[*corev1.Node]
	capacities client.ViewOf[*storagev1.CSIStorageCapacity]
	drivers    client.ViewOf[*storagev1.CSIDriver]
}

const capacityKeys = "/capacity"

func runLocal(ctx context.Context, env controller.Env) (err error) {
	if !env.Config.LocalStorage {
		<-ctx.Done()
		return nil
	}
	l := &localVolumes{env: env}
	if err := l.open(ctx); err != nil {
		return err
	}
	l.volumes.AddIndex(byNodeOfVolume, func(v *corev1.PersistentVolume) []string { return []string{v.Annotations[local.NodeAnnotation]} })
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "local-volume-controller",
		Inputs: []controller.Input{
			controller.On(l.volumes, l.keysOfVolume),
			controller.On(l.claims, func(e client.TypedEvent[*corev1.PersistentVolumeClaim]) []controller.Key {
				if !l.concerns(e.Object) {
					return nil
				}
				return []controller.Key{controller.KeyOf(e.Object)}
			}),
			controller.On(l.nodes, l.keysOfNode),
			controller.On(l.classes, func(e client.TypedEvent[*storagev1.StorageClass]) []controller.Key {
				if e.Object.Provisioner != local.Provisioner {
					return nil
				}
				return l.everything()
			}),
			controller.On(l.capacities, func(e client.TypedEvent[*storagev1.CSIStorageCapacity]) []controller.Key {
				if node := e.Object.Annotations[local.NodeAnnotation]; node != "" {
					return []controller.Key{{Namespace: capacityKeys, Name: node}}
				}
				return nil
			}),
			controller.On(l.drivers, func(e client.TypedEvent[*storagev1.CSIDriver]) []controller.Key {
				if e.Object.Name != local.Provisioner {
					return nil
				}
				return []controller.Key{{Namespace: capacityKeys}}
			}),
		},
		Reconcile: l.reconcile, // one worker: two claims must not take the same space
		Resync:    10 * time.Minute,
		Sources: []func(context.Context, func(controller.Key, time.Duration)){
			func(_ context.Context, add func(controller.Key, time.Duration)) {
				add(controller.Key{Namespace: firstClassKey}, 0)
				add(controller.Key{Namespace: capacityKeys}, 0)
			},
		},
	}
	return loop.Run(ctx)
}

func (l *localVolumes) open(ctx context.Context) (err error) {
	c := l.env.Client
	if l.claims, err = client.Open[*corev1.PersistentVolumeClaim](ctx, c, client.Scope{}); err != nil {
		return fmt.Errorf("open persistent volume claims: %w", err)
	}
	if l.volumes, err = client.Open[*corev1.PersistentVolume](ctx, c, client.Scope{}); err != nil {
		return fmt.Errorf("open persistent volumes: %w", err)
	}
	if l.classes, err = client.Open[*storagev1.StorageClass](ctx, c, client.Scope{}); err != nil {
		return fmt.Errorf("open storage classes: %w", err)
	}
	if l.nodes, err = client.Open[*corev1.Node](ctx, c, client.Scope{}); err != nil {
		return fmt.Errorf("open nodes: %w", err)
	}
	if l.capacities, err = client.Open[*storagev1.CSIStorageCapacity](ctx, c, client.Scope{}); err != nil {
		return fmt.Errorf("open storage capacities: %w", err)
	}
	if l.drivers, err = client.Open[*storagev1.CSIDriver](ctx, c, client.Scope{}); err != nil {
		return fmt.Errorf("open CSI drivers: %w", err)
	}
	return nil
}

func (l *localVolumes) keysOfVolume(e client.TypedEvent[*corev1.PersistentVolume]) []controller.Key {
	v := e.Object
	if !local.Ours(v) {
		return nil
	}
	keys := []controller.Key{{Name: v.Name}, {Namespace: capacityKeys, Name: v.Annotations[local.NodeAnnotation]}}
	if ref := v.Spec.ClaimRef; ref != nil {
		keys = append(keys, controller.Key{Namespace: ref.Namespace, Name: ref.Name})
	}
	if e.Type == client.Deleted {
		keys = append(keys, l.waiting()...) // there is space again
	}
	return keys
}

func (l *localVolumes) keysOfNode(e client.TypedEvent[*corev1.Node]) []controller.Key {
	if e.Type == client.Modified && e.Old.Annotations[local.ReportAnnotation] == e.Object.Annotations[local.ReportAnnotation] && nodeReady(e.Old) == nodeReady(e.Object) {
		return nil
	}
	keys := []controller.Key{{Namespace: capacityKeys, Name: e.Object.Name}}
	for _, v := range l.volumes.ByIndex(byNodeOfVolume, e.Object.Name) {
		if v.Annotations[local.PendingAnnotation] != "" || v.DeletionTimestamp != nil {
			keys = append(keys, controller.Key{Name: v.Name})
		}
	}
	return append(keys, l.waiting()...)
}

// waiting returns the claims that wait for a volume of this provisioner, or for growth.
func (l *localVolumes) waiting() []controller.Key {
	var keys []controller.Key
	for _, c := range l.claims.List("", nil) {
		grows := c.Spec.VolumeName != "" && c.Spec.Resources.Requests.Storage().Cmp(*c.Status.Capacity.Storage()) > 0
		if (c.Spec.VolumeName == "" || grows) && l.concerns(c) {
			keys = append(keys, controller.KeyOf(c))
		}
	}
	return keys
}

func (l *localVolumes) everything() []controller.Key {
	keys := append(l.waiting(), controller.Key{Namespace: capacityKeys})
	for _, n := range l.nodes.List("", nil) {
		if n.Annotations[local.ReportAnnotation] != "" {
			keys = append(keys, controller.Key{Namespace: capacityKeys, Name: n.Name})
		}
	}
	return keys
}

// concerns reports whether a claim asks this provisioner for its volume.
func (l *localVolumes) concerns(c *corev1.PersistentVolumeClaim) bool {
	if c.Annotations[provisioner] == local.Provisioner {
		return true
	}
	class, ok := l.classes.Get("", volumehelper.GetPersistentVolumeClaimClass(c))
	return ok && class.Provisioner == local.Provisioner
}

// nodeReady reports whether the node agent works.
func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (l *localVolumes) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	var err error
	switch {
	case key.Namespace == firstClassKey:
		err = l.firstClass(ctx)
	case key.Namespace == capacityKeys && key.Name == "":
		err = l.driver(ctx)
	case key.Namespace == capacityKeys:
		err = l.capacity(ctx, key.Name)
	case key.Namespace == "":
		if v, ok := l.volumes.Get("", key.Name); ok && local.Ours(v) {
			err = l.volume(ctx, v)
		}
	default:
		if c, ok := l.claims.Get(key.Namespace, key.Name); ok && c.DeletionTimestamp == nil {
			err = l.claim(ctx, c)
		}
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return controller.Result{}, err
}

func (l *localVolumes) event(obj client.Object, eventType, reason, note string, args ...any) {
	l.env.Events.Eventf(obj, nil, eventType, reason, "Provision", note, args...)
}

// answerOf returns the node's answer for a volume. ok is false while there is none.
func (l *localVolumes) answerOf(v *corev1.PersistentVolume) (answer local.Answer, node *corev1.Node, ok bool) {
	node, found := l.nodes.Get("", v.Annotations[local.NodeAnnotation])
	if !found {
		return local.Answer{}, nil, false
	}
	report, err := local.ParseReport(node)
	if err != nil {
		return local.Answer{}, node, false
	}
	answer, ok = report.Volumes[v.Name]
	return answer, node, ok
}

// free returns the free bytes of a node's folder, without the volumes that are promised already.
func (l *localVolumes) free(node, folder string, f local.Folder) int64 {
	var allocated, enforced int64
	for _, v := range l.volumes.ByIndex(byNodeOfVolume, node) {
		if !local.Ours(v) || v.Annotations[local.FolderAnnotation] != folder {
			continue
		}
		size := v.Spec.Capacity[corev1.ResourceStorage]
		allocated += size.Value()
		if local.Kind(v.Annotations[local.KindAnnotation]) != local.Plain {
			enforced += size.Value()
		}
	}
	return f.Free(allocated, enforced)
}

func folderOf(class *storagev1.StorageClass) string {
	if name := strings.TrimSpace(class.Parameters[local.ParameterFolder]); name != "" {
		return name
	}
	return local.DefaultFolder
}
