package worker

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/kubelet/images"
	"github.com/knarr-project/knarr/internal/kubelet/probe"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/status"
	"github.com/knarr-project/knarr/internal/volume"
)

// Volumes mounts what a pod's containers mount. Mount is called until it succeeds and may be called again after; podDir is the pod's
// folder below the node agent's root folder.
type Volumes interface {
	// Mount makes the pod's volumes appear and says where, by volume name.
	Mount(ctx context.Context, pod *corev1.Pod, podDir string) (map[string]volume.MountPoint, error)
	// Refresh brings projections up to date.
	Refresh(ctx context.Context, pod *corev1.Pod) error
	// Freeze leaves the projections of a pod that the API has no more as they are.
	Freeze(podUID types.UID)
	// Unmount takes all of the pod's volumes away. It works for pods that an earlier process mounted.
	Unmount(ctx context.Context, podUID types.UID, podDir string) error
}

// SubPaths prepares sub paths of volumes, safe from links that a container may have put there. Volumes that do not
// implement it cannot be mounted by sub path.
type SubPaths interface {
	SubPath(ctx context.Context, podDir string, mount corev1.VolumeMount, container string, index int, from volume.MountPoint, subPath string) (string, error)
}

// Cgroups makes the pod's cgroup, the parent of its containers'.
type Cgroups interface {
	// Ensure makes or updates the pod's cgroup and names it as the runtime wants it; "" leaves the choice to the runtime.
	Ensure(pod *corev1.Pod) (parent string, err error)
	Remove(uid types.UID) error
}

// Host is what a pod may know of its node.
type Host interface {
	IPs() []string
	Allocatable() corev1.ResourceList
	Machine() spec.Machine
	// DNS is the pod's resolv.conf.
	DNS(pod *corev1.Pod) (d spec.DNS, warnings []string)
	// RuntimeHandler is the handler of the pod's RuntimeClass.
	RuntimeHandler(ctx context.Context, pod *corev1.Pod) (string, error)
	// RecursiveReadOnly says whether the runtime handler mounts read-only recursively.
	RecursiveReadOnly(handler string) bool
}

// Deps is what workers work with; all pods' workers share one.
type Deps struct {
	Runtime     internalapi.RuntimeService
	RuntimeName string // prefix of container ids in statuses: "containerd"
	Images      *images.Manager
	Volumes     Volumes
	Cgroups     Cgroups
	Status      *status.Manager
	Client      client.Interface
	Events      client.Recorder
	Prober      *probe.Prober
	Sources     spec.Sources
	Host        Host
	Users       *UserNamespaces
	// ProbeCount counts probe results; may be nil.
	ProbeCount func(t probe.Target, kind probe.Kind, r probe.Result)
	// Fits says whether the node has room for the pod's resize; the reason and message are for the condition.
	Fits func(pod *corev1.Pod) (reason, message string)
	// Admitted keeps the resources that a resize took.
	Admitted func(pod *corev1.Pod)

	RootDir        string
	LogsDir        string
	ClusterDomain  string
	SeccompRoot    string
	SeccompDefault bool
	Now            func() time.Time
	Log            *slog.Logger
	// Gone is called when nothing is left of a pod.
	Gone func(uid types.UID)
}
