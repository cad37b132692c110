package scheduler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// factories returns all built-in plugins: pure ones, and plugins that act on the cluster.
func (s *Scheduler) factories() plugins.Factories {
	known := plugins.Builtin()
	known[framework.DefaultBinder] = func(runtime.Object, framework.Handle) (framework.Plugin, error) {
		return &defaultBinder{s}, nil
	}
	known[framework.DefaultPreemption] = func(args runtime.Object, _ framework.Handle) (framework.Plugin, error) {
		p := &defaultPreemption{s: s, candidates: mostCandidates}
		if a, ok := args.(*configv1.DefaultPreemptionArgs); ok {
			p.candidates = func(nodes int) int {
				return max(nodes*int(*a.MinCandidateNodesPercentage)/100, int(*a.MinCandidateNodesAbsolute))
			}
		}
		return p, nil
	}
	decideVolumes, decideDevices := known[framework.VolumeBinding], known[framework.DynamicResources]
	known[framework.VolumeBinding] = func(args runtime.Object, h framework.Handle) (framework.Plugin, error) {
		p, err := decideVolumes(args, h)
		if err != nil {
			return nil, err
		}
		whole := &volumePlugin{p.(volumeDecider), s.volumes, bindVolumesTimeout}
		if a, ok := args.(*configv1.VolumeBindingArgs); ok {
			whole.timeout = time.Duration(*a.BindTimeoutSeconds) * time.Second
		}
		return whole, nil
	}
	known[framework.DynamicResources] = func(args runtime.Object, h framework.Handle) (framework.Plugin, error) {
		p, err := decideDevices(args, h)
		if err != nil {
			return nil, err
		}
		whole := &devicePlugin{p.(deviceDecider), s.allocator, s, bindDevicesTimeout}
		if a, ok := args.(*configv1.DynamicResourcesArgs); ok {
			whole.timeout = a.BindingTimeout.Duration
		}
		return whole, nil
	}
	if s.groups != nil {
		known[framework.GangScheduling] = func(runtime.Object, framework.Handle) (framework.Plugin, error) { return &gangScheduling{s}, nil }
	}
	return known
}

// defaultBinder writes the binding to the API server.
type defaultBinder struct{ s *Scheduler }

func (*defaultBinder) Name() string { return framework.DefaultBinder }

func (b *defaultBinder) Bind(ctx context.Context, _ framework.State, pod *corev1.Pod, node string) *framework.Status {
	if err := b.s.bind(ctx, pod, node); err != nil {
		return framework.Fail(err)
	}
	return nil
}

// volumePlugin is the whole VolumeBinding plugin: the pure part decides, the other one acts.
type volumePlugin struct {
	volumeDecider
	*volumeBinder
	timeout time.Duration
}

type volumeDecider interface {
	framework.PreFilterPlugin
	framework.FilterPlugin
	framework.Requeuer
}

func (*volumePlugin) Name() string { return framework.VolumeBinding }

// PreBind waits for the volumes until the timeout.
func (p *volumePlugin) PreBind(ctx context.Context, state framework.State, pod *corev1.Pod, node string) *framework.Status {
	return p.bind(ctx, state, pod, node, p.timeout)
}

// devicePlugin is the whole DynamicResources plugin.
type devicePlugin struct {
	deviceDecider
	*allocator
	s       *Scheduler
	timeout time.Duration
}

type deviceDecider interface {
	framework.PreFilterPlugin
	framework.FilterPlugin
	framework.PreScorePlugin
	framework.NormalizePlugin
	framework.Requeuer
	ClaimsExist(framework.Devices, *corev1.Pod) *framework.Status
}

func (*devicePlugin) Name() string { return framework.DynamicResources }

// PreEnqueue implements framework.PreEnqueuePlugin: a pod waits until all its claims exist.
func (p *devicePlugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *framework.Status {
	if len(pod.Spec.ResourceClaims) == 0 || p.devices == nil {
		return nil
	}
	devices, err := p.devices.use()
	if err != nil {
		return nil // a decision reports the error
	}
	return p.ClaimsExist(devices, pod)
}

// PreBind waits for the devices until the timeout.
func (p *devicePlugin) PreBind(ctx context.Context, state framework.State, pod *corev1.Pod, node string) *framework.Status {
	return p.prepare(ctx, state, pod, node, p.timeout)
}

// PostFilter takes devices in the background from a claim that keeps the pod from its nodes.
func (p *devicePlugin) PostFilter(ctx context.Context, state framework.State, pod *framework.PodInfo, _ *framework.Snapshot, _ framework.Refusals) (string, *framework.Status) {
	decided, ok := decidedDevices(state)
	if !ok {
		return "", framework.Refuse("no new claims to deallocate")
	}
	if len(decided.InTheWay()) > 0 {
		p.s.write(ctx, func() {
			if err := p.makeRoom(ctx, pod.Pod, decided.InTheWay()); err != nil {
				p.s.log.Warn("cannot take devices from a claim for a pod", "pod", pod.Pod.Namespace+"/"+pod.Pod.Name, "error", err)
			}
		})
	}
	return "", framework.Refuse("still not schedulable")
}
