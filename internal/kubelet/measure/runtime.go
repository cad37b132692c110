package measure

import (
	"context"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime measures the calls of a runtime.
func (m *Metrics) Runtime(r internalapi.RuntimeService) internalapi.RuntimeService {
	return runtimeCalls{r, m}
}

// Images measures the calls of an image service.
func (m *Metrics) Images(i internalapi.ImageManagerService) internalapi.ImageManagerService {
	return imageCalls{i, m}
}

type runtimeCalls struct {
	internalapi.RuntimeService
	m *Metrics
}

type imageCalls struct {
	internalapi.ImageManagerService
	m *Metrics
}

// call measures one call of the runtime.
func (m *Metrics) call(operation string, began time.Time, err error) {
	m.operations.WithLabelValues(operation).Inc()
	m.operationSeconds.WithLabelValues(operation).Observe(time.Since(began).Seconds())
	if err != nil {
		m.operationErrors.WithLabelValues(operation).Inc()
	}
}

func measured(m *Metrics, operation string, fn func() error) error {
	began := time.Now()
	err := fn()
	m.call(operation, began, err)
	return err
}

func measuredValue[T any](m *Metrics, operation string, fn func() (T, error)) (T, error) {
	began := time.Now()
	out, err := fn()
	m.call(operation, began, err)
	return out, err
}

func (r runtimeCalls) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	err = measured(r.m, "exec_sync", func() error {
		stdout, stderr, err = r.RuntimeService.ExecSync(ctx, id, cmd, timeout)
		return err
	})
	return stdout, stderr, err
}

func (r runtimeCalls) Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error) {
	return measuredValue(r.m, "version", func() (*runtimeapi.VersionResponse, error) { return r.RuntimeService.Version(ctx, apiVersion) })
}

func (r runtimeCalls) CreateContainer(ctx context.Context, podSandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	return measuredValue(r.m, "create_container", func() (string, error) {
		return r.RuntimeService.CreateContainer(ctx, podSandboxID, config, sandboxConfig)
	})
}

func (r runtimeCalls) StartContainer(ctx context.Context, id string) error {
	return measured(r.m, "start_container", func() error { return r.RuntimeService.StartContainer(ctx, id) })
}

func (r runtimeCalls) StopContainer(ctx context.Context, id string, timeout int64) error {
	return measured(r.m, "stop_container", func() error { return r.RuntimeService.StopContainer(ctx, id, timeout) })
}

func (r runtimeCalls) RemoveContainer(ctx context.Context, id string) error {
	return measured(r.m, "remove_container", func() error { return r.RuntimeService.RemoveContainer(ctx, id) })
}

func (r runtimeCalls) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return measuredValue(r.m, "list_containers", func() ([]*runtimeapi.Container, error) { return r.RuntimeService.ListContainers(ctx, filter) })
}

func (r runtimeCalls) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return measuredValue(r.m, "container_status", func() (*runtimeapi.ContainerStatusResponse, error) {
		return r.RuntimeService.ContainerStatus(ctx, id, verbose)
	})
}

func (r runtimeCalls) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error {
	return measured(r.m, "update_container", func() error { return r.RuntimeService.UpdateContainerResources(ctx, id, resources) })
}

func (r runtimeCalls) Exec(ctx context.Context, q *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return measuredValue(r.m, "exec", func() (*runtimeapi.ExecResponse, error) { return r.RuntimeService.Exec(ctx, q) })
}

func (r runtimeCalls) Attach(ctx context.Context, q *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return measuredValue(r.m, "attach", func() (*runtimeapi.AttachResponse, error) { return r.RuntimeService.Attach(ctx, q) })
}

func (r runtimeCalls) ReopenContainerLog(ctx context.Context, id string) error {
	return measured(r.m, "reopen_container_log", func() error { return r.RuntimeService.ReopenContainerLog(ctx, id) })
}

func (r runtimeCalls) CheckpointContainer(ctx context.Context, q *runtimeapi.CheckpointContainerRequest) error {
	return measured(r.m, "checkpoint_container", func() error { return r.RuntimeService.CheckpointContainer(ctx, q) })
}

func (r runtimeCalls) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	began := time.Now()
	id, err := measuredValue(r.m, "run_podsandbox", func() (string, error) { return r.RuntimeService.RunPodSandbox(ctx, config, handler) })
	r.m.sandboxSeconds.WithLabelValues(handler).Observe(time.Since(began).Seconds())
	if err != nil {
		r.m.sandboxErrors.WithLabelValues(handler).Inc()
	}
	return id, err
}

func (r runtimeCalls) StopPodSandbox(ctx context.Context, id string) error {
	return measured(r.m, "stop_podsandbox", func() error { return r.RuntimeService.StopPodSandbox(ctx, id) })
}

func (r runtimeCalls) RemovePodSandbox(ctx context.Context, id string) error {
	return measured(r.m, "remove_podsandbox", func() error { return r.RuntimeService.RemovePodSandbox(ctx, id) })
}

func (r runtimeCalls) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return measuredValue(r.m, "podsandbox_status", func() (*runtimeapi.PodSandboxStatusResponse, error) {
		return r.RuntimeService.PodSandboxStatus(ctx, id, verbose)
	})
}

func (r runtimeCalls) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return measuredValue(r.m, "list_podsandbox", func() ([]*runtimeapi.PodSandbox, error) { return r.RuntimeService.ListPodSandbox(ctx, filter) })
}

func (r runtimeCalls) PortForward(ctx context.Context, q *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return measuredValue(r.m, "port_forward", func() (*runtimeapi.PortForwardResponse, error) { return r.RuntimeService.PortForward(ctx, q) })
}

func (r runtimeCalls) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return measuredValue(r.m, "list_podsandbox_stats", func() ([]*runtimeapi.PodSandboxStats, error) {
		return r.RuntimeService.ListPodSandboxStats(ctx, filter)
	})
}

func (r runtimeCalls) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	return measuredValue(r.m, "status", func() (*runtimeapi.StatusResponse, error) { return r.RuntimeService.Status(ctx, verbose) })
}

func (i imageCalls) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return measuredValue(i.m, "list_images", func() ([]*runtimeapi.Image, error) { return i.ImageManagerService.ListImages(ctx, filter) })
}

func (i imageCalls) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	return measuredValue(i.m, "image_status", func() (*runtimeapi.ImageStatusResponse, error) {
		return i.ImageManagerService.ImageStatus(ctx, image, verbose)
	})
}

func (i imageCalls) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, config *runtimeapi.PodSandboxConfig) (string, error) {
	began := time.Now()
	ref, err := measuredValue(i.m, "pull_image", func() (string, error) { return i.ImageManagerService.PullImage(ctx, image, auth, config) })
	if err != nil {
		return ref, err
	}
	took, size := time.Since(began), uint64(0)
	if status, err := i.ImageManagerService.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref}, false); err == nil {
		size = status.GetImage().GetSize()
	}
	i.m.pullSeconds.WithLabelValues(sizeClass(size)).Observe(took.Seconds())
	return ref, nil
}

// sizeClasses are upstream's classes of images by size.
var sizeClasses = []struct {
	above uint64
	label string
}{
	{100 << 30, "GT100GB"}, {60 << 30, "60GB-100GB"}, {40 << 30, "40GB-60GB"}, {30 << 30, "30GB-40GB"}, {20 << 30, "20GB-30GB"}, {10 << 30, "10GB-20GB"},
	{5 << 30, "5GB-10GB"}, {1 << 30, "1GB-5GB"}, {500 << 20, "500MB-1GB"}, {100 << 20, "100MB-500MB"}, {10 << 20, "10MB-100MB"}, {0, "0-10MB"},
}

func sizeClass(bytes uint64) string {
	for _, c := range sizeClasses {
		if bytes > c.above {
			return c.label
		}
	}
	return "N/A"
}

func (i imageCalls) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	return measured(i.m, "remove_image", func() error { return i.ImageManagerService.RemoveImage(ctx, image) })
}

func (i imageCalls) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return measuredValue(i.m, "image_fs_info", func() (*runtimeapi.ImageFsInfoResponse, error) { return i.ImageManagerService.ImageFsInfo(ctx) })
}
