package kubelet

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/knarr-project/knarr/internal/kubelet/devices"
	"github.com/knarr-project/knarr/internal/kubelet/dra"
	"github.com/knarr-project/knarr/internal/kubelet/plugins"
	"github.com/knarr-project/knarr/internal/kubelet/podresources"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/status"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// nodeDevices gives devices of device plugins and of drivers to the pods' workers.
type nodeDevices struct {
	k       *Kubelet
	plugins *devices.Manager
	claims  *dra.Manager
	// look asks for a look at claims of pods that are gone.
	look chan struct{}
}

func newNodeDevices(k *Kubelet) *nodeDevices {
	n := &nodeDevices{k: k, look: make(chan struct{}, 1)}
	n.plugins = devices.New(devices.Config{
		Dir: filepath.Join(k.RootDir, "device-plugins"), Changed: func() { k.node.Kick() }, Touched: n.touched, Log: k.log, Now: k.Now,
	})
	n.claims = dra.New(dra.Config{Client: k.Client, NodeName: k.NodeName, Dir: k.RootDir, Touched: n.touched, Log: k.log})
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
			for {
				err := run(ctx)
				if err == nil {
					return
				}
				n.k.log.Error("a part for plugins has ended; it starts again in a minute", "part", what, "error", err)
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Minute):
				}
			}
		}()
	}
	registry := &plugins.Watcher{
		Dir: filepath.Join(n.k.RootDir, "plugins_registry"), Log: n.k.log,
		Handlers: map[string]plugins.Handler{registerapi.DevicePlugin: n.plugins.Handler(ctx), registerapi.DRAPlugin: n.claims.Handler(ctx)},
	}
	if n.k.CSI != nil {
		registry.Handlers[registerapi.CSIPlugin] = &csiHandler{n.k.CSI, ctx}
	}
	part("device plugins", n.plugins.Run)
	part("plugin registry", registry.Run)
	resources := &podresources.Server{
		Socket: filepath.Join(n.k.RootDir, "pod-resources", "kubelet.sock"), Pods: n.k.activePods, Devices: n.plugins, Claims: n.claims,
		CPUs: n.k.places.exclusiveCPUs, Memory: n.k.places.boundMemory, AllCPUs: n.k.places.allCPUs, AllMemory: n.k.places.allMemory,
	}
	part("pod resources", resources.Run)
	part("resource slices", n.claims.Run)
	part("claims of removed pods", n.unprepare)
}

// unprepare unprepares claims of removed pods until ctx ends.
func (n *nodeDevices) unprepare(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.look:
		}
		if err := n.claims.Retain(ctx, n.alive); err != nil && ctx.Err() == nil {
			n.k.log.Warn("cannot unprepare the claims of removed pods; trying again", "error", err)
		}
	}
}

// activePods returns the pods that have not ended.
func (k *Kubelet) activePods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range k.Workers() {
		if v := w.View(); v.Stage < worker.Terminated && !status.Terminal(v.Status.Phase) {
			out = append(out, v.Pod)
		}
	}
	return out
}

// touched makes the pods show the health of their devices.
func (n *nodeDevices) touched(pods []types.UID) {
	for _, uid := range pods {
		if w := n.k.worker(uid); w != nil {
			w.Kick()
		}
	}
}

// alive reports whether a pod may have devices.
func (n *nodeDevices) alive(uid types.UID) bool {
	n.k.mu.Lock()
	w, admitted := n.k.workers[uid], n.k.admitted[uid] != nil
	n.k.mu.Unlock()
	if w == nil {
		return admitted // its worker is about to start
	}
	return w.View().Stage < worker.Released
}

// retain frees the devices of pods that are gone. It does not wait for drivers.
func (n *nodeDevices) retain() {
	if err := n.plugins.Retain(n.alive); err != nil {
		n.k.log.Warn("cannot write the checkpoint of devices", "error", err)
	}
	select {
	case n.look <- struct{}{}:
	default:
	}
}

func (n *nodeDevices) Allocate(ctx context.Context, pod *corev1.Pod) error {
	return n.plugins.Allocate(ctx, pod)
}

func (n *nodeDevices) Prepare(ctx context.Context, pod *corev1.Pod) error {
	return n.claims.Prepare(ctx, pod)
}

func (n *nodeDevices) Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (*spec.Devices, error) {
	out, err := n.plugins.Container(ctx, pod, c)
	if err != nil {
		return nil, err
	}
	ids, err := n.claims.CDI(pod, c)
	if err != nil || len(ids) == 0 {
		return out, err
	}
	if out == nil {
		out = &spec.Devices{}
	}
	for _, id := range ids {
		out.AddCDI(id)
	}
	return out, nil
}

func (n *nodeDevices) Health(pod *corev1.Pod, c *corev1.Container) []corev1.ResourceStatus {
	return append(n.plugins.Health(pod.UID, c.Name), n.claims.Health(pod, c)...)
}

func (n *nodeDevices) Release(ctx context.Context, pod *corev1.Pod) error {
	return errors.Join(n.plugins.Release(pod.UID), n.claims.Unprepare(ctx, pod.UID))
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

// csiHandler registers CSI drivers.
type csiHandler struct {
	drivers CSIDrivers
	life    context.Context //nolint:containedctx // drivers outlive the call that registers them
}

func (h *csiHandler) Register(ctx context.Context, p plugins.Plugin) error {
	return h.drivers.RegisterDriver(ctx, p.Name, p.Endpoint, p.Socket, p.Versions)
}

func (h *csiHandler) Deregister(p plugins.Plugin) {
	h.drivers.DeregisterDriver(h.life, p.Name, p.Socket)
}
