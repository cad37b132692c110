package fake

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CRI is an in-memory container runtime. Unimplemented methods panic.
type CRI struct {
	internalapi.RuntimeService

	mu         sync.Mutex
	next       int
	clock      int64
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*container
	watchers   []chan *runtimeapi.ContainerEventResponse
	unready    string

	// Behave returns a container's behaviour from its configuration. If nil, containers run until
	// they are stopped, and then end at once.
	Behave func(c *runtimeapi.ContainerConfig) Behavior
	// OnExec answers ExecSync. If nil, commands succeed.
	OnExec func(container string, command []string) error
	// SandboxError is the error of RunPodSandbox.
	SandboxError func() error
	// Calls lists the calls in order: "start main-0", "stop main-0", ...
	Calls []string
	// Configs holds the configurations of created containers by name and attempt.
	Configs map[string]*runtimeapi.ContainerConfig
}

// Behavior is how a container behaves.
type Behavior struct {
	// ExitAfter is when the container exits on its own with ExitCode. 0 keeps it running; a
	// negative value ends it at once.
	ExitAfter time.Duration
	ExitCode  int32
	// Stubborn containers ignore the stop signal.
	Stubborn bool
	StartErr error
}

type container struct {
	status   *runtimeapi.ContainerStatus
	sandbox  string
	behavior Behavior
	ended    chan struct{}
}

// NewCRI makes an empty runtime.
func NewCRI() *CRI {
	return &CRI{sandboxes: map[string]*runtimeapi.PodSandboxStatus{}, containers: map[string]*container{}, Configs: map[string]*runtimeapi.ContainerConfig{}}
}

func (r *CRI) now() int64 {
	r.clock = max(r.clock+1, time.Now().UnixNano())
	return r.clock
}

func (r *CRI) id(prefix string) string {
	r.next++
	return fmt.Sprintf("%s%d", prefix, r.next)
}

func name(m *runtimeapi.ContainerMetadata) string { return fmt.Sprintf("%s-%d", m.Name, m.Attempt) }

// Log lists the calls so far.
func (r *CRI) Log() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.Calls...)
}

// Config returns the configuration with which a container was created.
func (r *CRI) Config(name string, attempt int) *runtimeapi.ContainerConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Configs[fmt.Sprintf("%s-%d", name, attempt)]
}

// Counts returns the number of sandboxes and containers.
func (r *CRI) Counts() (sandboxes, containers int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sandboxes), len(r.containers)
}

func (r *CRI) emit(c *container, t runtimeapi.ContainerEventType) {
	e := &runtimeapi.ContainerEventResponse{ContainerId: c.status.Id, ContainerEventType: t, PodSandboxStatus: copySandbox(r.sandboxes[c.sandbox])}
	for _, o := range r.containers {
		if o.sandbox == c.sandbox {
			e.ContainersStatuses = append(e.ContainersStatuses, copyStatus(o.status))
		}
	}
	for _, w := range r.watchers {
		select {
		case w <- e:
		default:
		}
	}
}

func copyStatus(s *runtimeapi.ContainerStatus) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, StartedAt: s.StartedAt, FinishedAt: s.FinishedAt,
		ExitCode: s.ExitCode, Reason: s.Reason, Image: s.Image, ImageRef: s.ImageRef, Labels: s.Labels, Annotations: s.Annotations, Mounts: s.Mounts,
		LogPath: s.LogPath, Resources: s.Resources}
}

func copySandbox(s *runtimeapi.PodSandboxStatus) *runtimeapi.PodSandboxStatus {
	if s == nil {
		return nil
	}
	return &runtimeapi.PodSandboxStatus{Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Network: s.Network, Labels: s.Labels}
}

func notFound(id string) error { return grpcstatus.Errorf(codes.NotFound, "%s not found", id) }

// Version implements CRI.
func (r *CRI) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1"}, nil
}

// Status implements CRI.
func (r *CRI) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := &runtimeapi.RuntimeStatus{}
	for _, condition := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
		c := &runtimeapi.RuntimeCondition{Type: condition, Status: r.unready != condition}
		if !c.Status {
			c.Reason, c.Message = "Faked", "not yet"
		}
		status.Conditions = append(status.Conditions, c)
	}
	return &runtimeapi.StatusResponse{Status: status}, nil
}

// Unready makes one condition of the runtime false (RuntimeReady, NetworkReady). "" makes all
// conditions true again.
func (r *CRI) Unready(condition string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unready = condition
}

// RunPodSandbox implements CRI.
func (r *CRI) RunPodSandbox(_ context.Context, c *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	if r.SandboxError != nil {
		if err := r.SandboxError(); err != nil {
			return "", err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.id("sandbox")
	r.Calls = append(r.Calls, fmt.Sprintf("sandbox %s-%d", c.Metadata.Name, c.Metadata.Attempt))
	r.sandboxes[id] = &runtimeapi.PodSandboxStatus{Id: id, Metadata: c.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: r.now(),
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: fmt.Sprintf("10.0.0.%d", r.next)}, Labels: c.Labels}
	return id, nil
}

// PodSandboxStatus implements CRI.
func (r *CRI) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil, notFound(id)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: copySandbox(s)}, nil
}

// StopPodSandbox implements CRI.
func (r *CRI) StopPodSandbox(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return notFound(id)
	}
	r.Calls = append(r.Calls, "stop sandbox "+s.Metadata.Name)
	s = copySandbox(s)
	s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	r.sandboxes[id] = s
	for _, c := range r.containers {
		if c.sandbox == id {
			r.end(c, 137)
		}
	}
	return nil
}

// RemovePodSandbox implements CRI.
func (r *CRI) RemovePodSandbox(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sandboxes, id)
	for cid, c := range r.containers {
		if c.sandbox == id {
			delete(r.containers, cid)
		}
	}
	return nil
}

// ListPodSandbox implements CRI.
func (r *CRI) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.PodSandbox
	for _, s := range r.sandboxes {
		out = append(out, &runtimeapi.PodSandbox{Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels})
	}
	return out, nil
}

// CreateContainer implements CRI.
func (r *CRI) CreateContainer(_ context.Context, sandbox string, c *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sandboxes[sandbox] == nil {
		return "", notFound(sandbox)
	}
	id := r.id("container")
	b := Behavior{}
	if r.Behave != nil {
		b = r.Behave(c)
	}
	r.Configs[name(c.Metadata)] = c
	n := &container{sandbox: sandbox, behavior: b, ended: make(chan struct{}), status: &runtimeapi.ContainerStatus{
		Id: id, Metadata: c.Metadata, State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: r.now(), Image: c.Image, ImageRef: c.Image.Image,
		Labels: c.Labels, Annotations: c.Annotations, Mounts: c.Mounts,
	}}
	r.containers[id] = n
	r.emit(n, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return id, nil
}

// StartContainer implements CRI.
func (r *CRI) StartContainer(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return notFound(id)
	}
	r.Calls = append(r.Calls, "start "+name(c.status.Metadata))
	s := copyStatus(c.status)
	if c.behavior.StartErr != nil { // StartedAt stays 0, as with containerd
		s.State, s.ExitCode, s.Reason, s.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, 128, "StartError", r.now()
		c.status = s
		return c.behavior.StartErr
	}
	s.State, s.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, r.now()
	c.status = s
	r.emit(c, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	if after := c.behavior.ExitAfter; after != 0 {
		time.AfterFunc(max(after, 0), func() { r.Exit(id, c.behavior.ExitCode) })
	}
	return nil
}

// Exit ends a container.
func (r *CRI) Exit(id string, code int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.end(c, code)
	}
}

// ExitName ends the running container of that name.
func (r *CRI) ExitName(container string, code int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.status.Metadata.Name == container && c.status.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			r.end(c, code)
		}
	}
}

// KillSandboxes makes all sandboxes unready and their containers dead, as a reboot does.
func (r *CRI) KillSandboxes() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.sandboxes {
		s = copySandbox(s)
		s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		r.sandboxes[id] = s
	}
	for _, c := range r.containers {
		r.end(c, 137)
	}
}

func (r *CRI) end(c *container, code int32) {
	if c.status.State == runtimeapi.ContainerState_CONTAINER_EXITED {
		return
	}
	s := copyStatus(c.status)
	s.State, s.ExitCode, s.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, code, r.now()
	c.status = s
	close(c.ended)
	r.emit(c, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// StopContainer implements CRI.
func (r *CRI) StopContainer(ctx context.Context, id string, timeout int64) error {
	r.mu.Lock()
	c := r.containers[id]
	if c == nil {
		r.mu.Unlock()
		return notFound(id)
	}
	r.Calls = append(r.Calls, "stop "+name(c.status.Metadata))
	if !c.behavior.Stubborn {
		r.end(c, 143)
	}
	r.mu.Unlock()
	select {
	case <-c.ended:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(timeout) * time.Second):
		r.Exit(id, 137)
	}
	return nil
}

// RemoveContainer implements CRI.
func (r *CRI) RemoveContainer(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.containers, id)
	return nil
}

// ListContainers implements CRI.
func (r *CRI) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.Container
	for _, c := range r.containers {
		s := c.status
		out = append(out, &runtimeapi.Container{Id: s.Id, PodSandboxId: c.sandbox, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels})
	}
	return out, nil
}

// ContainerStatus implements CRI.
func (r *CRI) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil, notFound(id)
	}
	return &runtimeapi.ContainerStatusResponse{Status: copyStatus(c.status)}, nil
}

// UpdateContainerResources implements CRI.
func (r *CRI) UpdateContainerResources(_ context.Context, id string, res *runtimeapi.ContainerResources) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return notFound(id)
	}
	if cpus := res.Linux.CpusetCpus; cpus != "" && res.Linux.CpuShares == 0 {
		r.Calls = append(r.Calls, fmt.Sprintf("move %s cpus=%s", name(c.status.Metadata), cpus))
		return nil
	}
	r.Calls = append(r.Calls, fmt.Sprintf("resize %s cpu=%d memory=%d", name(c.status.Metadata), res.Linux.CpuShares, res.Linux.MemoryLimitInBytes))
	return nil
}

// ContainerStats implements CRI. Each container uses 1 MiB of memory.
func (r *CRI) ContainerStats(_ context.Context, id string) (*runtimeapi.ContainerStats, error) {
	return &runtimeapi.ContainerStats{Memory: &runtimeapi.MemoryUsage{UsageBytes: &runtimeapi.UInt64Value{Value: 1 << 20}}}, nil
}

// ExecSync implements CRI.
func (r *CRI) ExecSync(_ context.Context, id string, cmd []string, _ time.Duration) (stdout, stderr []byte, err error) {
	r.mu.Lock()
	c := r.containers[id]
	exec := r.OnExec
	if c != nil {
		r.Calls = append(r.Calls, fmt.Sprintf("exec %s %v", name(c.status.Metadata), cmd))
	}
	r.mu.Unlock()
	if c == nil {
		return nil, nil, notFound(id)
	}
	if exec == nil {
		return nil, nil, nil
	}
	return nil, nil, exec(c.status.Metadata.Name, cmd)
}

// GetContainerEvents implements CRI.
func (r *CRI) GetContainerEvents(ctx context.Context, to chan *runtimeapi.ContainerEventResponse, connected func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	mine := make(chan *runtimeapi.ContainerEventResponse, 1000)
	r.mu.Lock()
	r.watchers = append(r.watchers, mine)
	r.mu.Unlock()
	connected(nil)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-mine:
			to <- e
		}
	}
}

// Images is an image service that has every image except those named "missing...".
type Images struct {
	internalapi.ImageManagerService
}

// ListImages implements CRI.
func (Images) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return nil, nil
}

// ImageStatus implements CRI.
func (Images) ImageStatus(_ context.Context, i *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	if len(i.Image) >= 7 && i.Image[:7] == "missing" {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "sha256:" + i.Image, Size: 1}}, nil
}

// ImageFsInfo implements CRI. There is no image filesystem.
func (Images) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}

// PullImage implements CRI.
func (Images) PullImage(_ context.Context, i *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	return "", fmt.Errorf("pull %s: not found", i.Image)
}
