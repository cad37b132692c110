package kubelet

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/knarr-project/knarr/internal/kubelet/devices"
	"github.com/knarr-project/knarr/internal/kubelet/dra"
	"github.com/knarr-project/knarr/internal/kubelet/plugins"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// nodeDevices gives devices of device plugins and of drivers to the pods' workers.
type nodeDevices struct {
	k       *Kubelet
	plugins *devices.Manager
	claims  *dra.Manager
}

func newNodeDevices(k *Kubelet) *nodeDevices {
	n := &nodeDevices{k: k, claims: &dra.Manager{Client: k.Client}}
	n.plugins = devices.New(devices.Config{
		Dir: filepath.Join(k.RootDir, "device-plugins"), Changed: func() { k.node.Kick() }, Touched: n.touched, Log: k.log, Now: k.Now,
	})
	return n
}

// run serves plugins until ctx ends. The node works without plugins, so a failure is only logged.
func (n *nodeDevices) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	part := func(what string, run func(context.Context) error) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for ctx.Err() == nil {
				if err := run(ctx); err != nil {
					n.k.log.Error("a part for plugins has ended; it starts again in a minute", "part", what, "error", err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
			}
		}()
	}
	registry := &plugins.Watcher{
		Dir: filepath.Join(n.k.RootDir, "plugins_registry"), Log: n.k.log,
		Handlers: map[string]plugins.Handler{registerapi.DevicePlugin: n.plugins.Handler(ctx)},
	}
	part("device plugins", n.plugins.Run)
	part("plugin registry", registry.Run)
}

// touched makes the pods show the health of their devices.
func (n *nodeDevices) touched(pods []types.UID) {
	for _, uid := range pods {
		if w := n.k.worker(uid); w != nil {
			w.Kick()
		}
	}
}

// retain frees the devices of pods that are gone.
func (n *nodeDevices) retain(context.Context) {
	alive := func(uid types.UID) bool {
		n.k.mu.Lock()
		w, admitted := n.k.workers[uid], n.k.admitted[uid] != nil
		n.k.mu.Unlock()
		if w == nil {
			return admitted // its worker is about to start
		}
		return w.View().Stage < worker.Released
	}
	if err := n.plugins.Retain(alive); err != nil {
		n.k.log.Warn("cannot write the checkpoint of devices", "error", err)
	}
}

func (n *nodeDevices) Allocate(ctx context.Context, pod *corev1.Pod) error {
	return n.plugins.Allocate(ctx, pod)
}

func (n *nodeDevices) Prepare(ctx context.Context, pod *corev1.Pod) error {
	return n.claims.Prepare(ctx, pod)
}

func (n *nodeDevices) Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (*spec.Devices, error) {
	return n.plugins.Container(ctx, pod, c)
}

func (n *nodeDevices) Health(pod *corev1.Pod, container string) []corev1.ResourceStatus {
	return n.plugins.Health(pod.UID, container)
}

func (n *nodeDevices) Release(_ context.Context, pod *corev1.Pod) error {
	return n.plugins.Release(pod.UID)
}

// byDriver reports whether a driver of dynamic resources provides the pod's extended resource. The
// scheduler alone counts it then.
func byDriver(pod *corev1.Pod, resource string) bool {
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		for _, m := range s.RequestMappings {
			if m.ResourceName == resource {
				return true
			}
		}
	}
	return false
}
