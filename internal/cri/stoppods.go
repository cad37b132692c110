package cri

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podGrace is the time in seconds that a container has to exit: the default of a pod's
// terminationGracePeriodSeconds.
const podGrace = 30

// StopPods starts containerd temporarily, stops all running pods, and returns their number. It
// removes nothing: the node agent finds the stopped pods at its next start. No knarr may run on the
// folders.
func StopPods(ctx context.Context, config Config) (int, error) {
	running, cancel := context.WithCancel(ctx)
	runtime, err := Start(running, config)
	if err != nil {
		cancel()
		return 0, err
	}
	defer runtime.Wait()
	defer cancel()
	sandboxes, err := runtime.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}})
	if err != nil {
		return 0, err
	}
	var stopped atomic.Int32
	var pods errgroup.Group
	pods.SetLimit(16)
	for _, sandbox := range sandboxes {
		pods.Go(func() error {
			if err := stopPod(ctx, runtime, sandbox.Id); err != nil {
				return fmt.Errorf("pod %s/%s: %w", sandbox.Metadata.Namespace, sandbox.Metadata.Name, err)
			}
			stopped.Add(1)
			return nil
		})
	}
	err = pods.Wait()
	return int(stopped.Load()), err
}

// stopPod stops the containers of a pod concurrently, then its sandbox.
func stopPod(ctx context.Context, runtime *Runtime, sandbox string) error {
	containers, err := runtime.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{
		PodSandboxId: sandbox, State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return err
	}
	errs := make([]error, len(containers)+1)
	var all errgroup.Group
	for i, container := range containers {
		all.Go(func() error { errs[i] = runtime.Runtime.StopContainer(ctx, container.Id, podGrace); return nil })
	}
	_ = all.Wait()
	errs[len(containers)] = runtime.Runtime.StopPodSandbox(ctx, sandbox)
	return errors.Join(errs...)
}
