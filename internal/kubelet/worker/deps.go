package worker

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/spans"
	"github.com/knarr-project/knarr/internal/kubelet/images"
	"github.com/knarr-project/knarr/internal/kubelet/logs"
	"github.com/knarr-project/knarr/internal/kubelet/probe"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/status"
	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/volume"
)

// Volumes mounts the volumes of a pod. Mount is called until it succeeds and may be called again
// later. podDir is the pod's folder below the node agent's root folder.
type Volumes interface {
	// Mount mounts the pod's volumes and returns their mount points by volume name.
	Mount(ctx context.Context, pod *corev1.Pod, podDir string) (map[string]volume.MountPoint, error)
	// Refresh updates projections.
	Refresh(ctx context.Context, pod *corev1.Pod) error
	// Freeze stops updates of the projections of a pod that the API does not have any more.
	Freeze(podUID types.UID)
	// Unmount unmounts all volumes of the pod, also those that an earlier process mounted.
	Unmount(ctx context.Context, podUID types.UID, podDir string) error
}

// SubPaths prepares sub paths of volumes, safe from links that a container may have created.
// Volumes that do not implement it do not support sub paths.
type SubPaths interface {
	SubPath(ctx context.Context, podDir string, mount corev1.VolumeMount, container string, index int, from volume.MountPoint, subPath string) (string, error)
}

// Cgroups manages the pod's cgroup, which is the parent of its containers' cgroups.
type Cgroups interface {
	// Ensure makes or updates the pod's cgroup. It returns the name for the runtime; "" lets the
	// runtime choose.
	Ensure(pod *corev1.Pod) (parent string, err error)
	// Widen gives the pod's existing cgroup the larger limits of both versions of the pod.
	Widen(pod, before *corev1.Pod) error
	// MemoryUsage is the number of bytes that the pod's cgroup uses.
	MemoryUsage(pod *corev1.Pod) (int64, error)
	Remove(uid types.UID) error
}

// Placement pins containers to CPUs and to the memory of NUMA nodes.
type Placement interface {
	// Pin adds the container's CPUs and NUMA nodes to its settings.
	Pin(pod *corev1.Pod, container string, r *runtimeapi.LinuxContainerResources)
}

// Devices gives devices of device plugins and drivers to pods. All methods may be called again,
// after a failure or a restart.
type Devices interface {
	// Allocate chooses devices for all containers of the pod. An error ends the pod, unless its
	// containers run already.
	Allocate(ctx context.Context, pod *corev1.Pod) error
	// Prepare prepares the devices of the pod's resource claims.
	Prepare(ctx context.Context, pod *corev1.Pod) error
	// Container returns what a container needs to use its devices; nil if it has none.
	Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (*spec.Devices, error)
	// Health returns the health of the container's devices.
	Health(pod *corev1.Pod, c *corev1.Container) []corev1.ResourceStatus
	// Release frees the devices of a pod of which nothing runs.
	Release(ctx context.Context, pod *corev1.Pod) error
}

// Host is the node's data for its pods.
type Host interface {
	IPs() []string
	Allocatable() corev1.ResourceList
	Machine() spec.Machine
	// DNS returns the pod's resolv.conf.
	DNS(pod *corev1.Pod) (d spec.DNS, warnings []string)
	// RuntimeHandler returns the handler of the pod's RuntimeClass.
	RuntimeHandler(ctx context.Context, pod *corev1.Pod) (string, error)
	// RecursiveReadOnly reports whether the runtime handler supports recursive read-only mounts.
	RecursiveReadOnly(handler string) bool
}

// Metrics receives what is measured.
type Metrics interface {
	Probed(t probe.Target, kind probe.Kind, r probe.Result, took time.Duration)
	// Stepped measures one step of the worker: "create", "sync" or "kill".
	Stepped(operation string, took time.Duration)
	// PodMade counts an attempt to make a sandbox. mapped reports whether the pod has a user
	// namespace of its own.
	PodMade(mapped bool, err error)
	// PodRunning measures the start of a pod, since the worker was made and since its creation.
	PodRunning(sinceSeen, sinceCreated time.Duration)
	// ContainerStarted counts an attempt to start a container. code is the reason of a failure.
	ContainerStarted(mapped bool, kind, code string)
	// Volumes measures MountVolumes and UnmountVolumes.
	Volumes(operation string, pod *corev1.Pod, took time.Duration, err error)
}

// Operations of Metrics.Volumes.
const (
	MountVolumes   = "volume_mount"
	UnmountVolumes = "volume_unmount"
)

// Deps are the dependencies that all workers share.
type Deps struct {
	// Tracer records the actions on pods; may be nil.
	Tracer *trace.Tracer
	// Spans keeps what happens to pods without a write; may be nil.
	Spans       *spans.Ring
	Runtime     internalapi.RuntimeService
	RuntimeName string // prefix of container ids in statuses, such as "containerd"
	Images      *images.Manager
	Volumes     Volumes
	Cgroups     Cgroups
	Devices     Devices
	Placement   Placement
	Status      *status.Manager
	Client      client.Interface
	Events      client.Recorder
	Prober      *probe.Prober
	Sources     spec.Sources
	Host        Host
	Users       *UserNamespaces
	Metrics     Metrics
	// Fits reports whether the node has room for the pod's resize. reason and message are for the
	// condition; an empty reason means that it has.
	Fits func(pod *corev1.Pod) (reason, message string)
	// Admitted records the resources of a granted resize.
	Admitted func(pod *corev1.Pod)

	RootDir        string
	Logs           *logs.Folders
	ClusterDomain  string
	SeccompRoot    string
	SeccompDefault bool
	// CrashMax is the longest pause before a restart; 0 selects five minutes.
	CrashMax time.Duration
	Now      func() time.Time
	Log      *slog.Logger
	// Gone is called when nothing is left of a pod.
	Gone func(uid types.UID)
}
