package kubelet

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/node"
	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// noLog is passed to upstream's helpers that require a logger.
var noLog = logr.Discard()

const (
	// housekeepingPeriod is the interval for removing leftovers.
	housekeepingPeriod = 30 * time.Second
	imagePeriod        = 5 * time.Minute
)

// sourcesReady notes that all sources have delivered their pods. From now on, any other pod in the
// runtime is an orphan.
func (k *Kubelet) sourcesReady() {
	k.mu.Lock()
	first, orphans, names := !k.ready, k.observed, k.names
	if !first {
		orphans = nil
	}
	k.ready = true
	k.observed, k.names = map[types.UID]*pleg.Observed{}, map[types.UID]types.NamespacedName{}
	k.mu.Unlock()
	for uid, o := range orphans {
		k.orphanIn(k.ctx, uid, names[uid], o)
	}
	if first {
		k.sweep(k.ctx, 0) // every folder is of an earlier run
		k.linkLogs()
	}
	k.devices.retain()
}

// housekeeping removes what ended pods left behind.
func (k *Kubelet) housekeeping(ctx context.Context) {
	k.enforce()
	tick := time.NewTicker(housekeepingPeriod)
	defer tick.Stop()
	images := time.NewTicker(imagePeriod)
	defer images.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-images.C:
			if err := k.imageGC.Collect(ctx); err != nil && ctx.Err() == nil {
				k.Events.Eventf(k.node.Reference(), nil, corev1.EventTypeWarning, "FreeDiskSpaceFailed", "CollectingImages", "%v", err)
			}
			continue
		}
		k.enforce()
		k.mu.Lock()
		ready := k.ready
		k.mu.Unlock()
		if ready {
			k.sweep(ctx, housekeepingPeriod)
			k.sweepCgroups()
			k.linkLogs()
			k.devices.retain()
		}
	}
}

func (k *Kubelet) orphan(uid types.UID, name types.NamespacedName, o *pleg.Observed) {
	k.orphanIn(k.ctx, uid, name, o)
}

// orphanIn stops and removes the containers and sandboxes of a pod that no source has.
func (k *Kubelet) orphanIn(ctx context.Context, uid types.UID, name types.NamespacedName, o *pleg.Observed) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: uid}}
	seen := map[string]bool{}
	for _, c := range o.Containers {
		if !seen[c.Name()] {
			seen[c.Name()] = true
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Name(), Image: c.GetImage().GetImage()})
		}
		if g, err := strconv.ParseInt(c.Annotations["io.kubernetes.pod.terminationGracePeriod"], 10, 64); err == nil {
			pod.Spec.TerminationGracePeriodSeconds = &g
		}
	}
	k.log.Info("stopping containers of an unknown pod", "pod", name, "uid", uid)
	w := worker.New(k.deps, pod, o)
	w.Removed()
	k.start(ctx, w, uid)
}

// sweep removes the folders of removed pods that are at least this old.
func (k *Kubelet) sweep(ctx context.Context, age time.Duration) {
	k.places.sweep()
	entries, _ := os.ReadDir(filepath.Join(k.RootDir, "pods"))
	for _, e := range entries {
		uid := types.UID(e.Name())
		if k.worker(uid) != nil || k.known(uid) {
			continue
		}
		info, err := e.Info()
		if err != nil || age > 0 && k.Now().Sub(info.ModTime()) < age {
			continue
		}
		name := types.NamespacedName{}
		k.log.Info("removing the folder of a removed pod", "uid", uid)
		k.orphanIn(ctx, uid, name, pleg.NewObserved())
	}
}

// known reports whether the API has the pod.
func (k *Kubelet) known(uid types.UID) bool {
	for _, p := range k.podView.List("", nil) {
		if p.UID == uid {
			return true
		}
	}
	return false
}

func (k *Kubelet) nodeConfig() (node.Config, error) {
	reserved, thresholds, err := k.reservations()
	if err != nil {
		return node.Config{}, err
	}
	s := k.Settings
	port := int32(0)
	if _, p, err := net.SplitHostPort(k.Listen); err == nil {
		if n, err := strconv.ParseInt(p, 10, 32); err == nil {
			port = int32(n)
		}
	}
	return node.Config{
		Name: k.NodeName, Client: k.Client, Runtime: k.Runtime, Images: k.Config.Images, Machine: k.machine, MaxPods: k.Settings.PodLimit(k.machine.CPUs), LeaseDuration: time.Duration(k.Settings.NodeLeaseDurationSeconds) * time.Second, Addresses: k.NodeIPs,
		Labels: k.NodeLabels, Annotations: k.NodeAnnotations, Owned: k.NodeOwned, Taints: k.Settings.RegisterWithTaints, Unschedulable: k.Unschedulable, Reserved: reserved, Threshold: thresholds,
		ReportPeriod: s.NodeStatusReportFrequency.Duration, CheckPeriod: s.NodeStatusUpdateFrequency.Duration, MaxImages: int(*s.NodeStatusMaxImages),
		ProviderID: s.ProviderID, Unregistered: !*s.RegisterNode, Port: port,
		Devices: k.devices.plugins.Capacity, ForgetDevices: k.devices.plugins.Fresh(),
		VolumesInUse: k.volumesInUse, Healthy: k.canStartPods, Pressure: func() node.Pressure { return k.evictions.Pressure() }, Events: k.Events, Now: k.Now, Log: k.log,
	}, nil
}
