// Package podresources serves the pod-resources API: which devices, CPUs and memory the containers
// of this node have (KEP-606). Monitoring agents read it from a socket on the node.
//
// The API is k8s.io/kubelet/pkg/apis/podresources/v1. Calls beyond 100 a second, or a burst of 10,
// are refused.
package podresources

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/knarr-project/knarr/internal/kubelet/devices"
	"github.com/knarr-project/knarr/internal/kubelet/dra"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// Limits of calls, as upstream.
const (
	callsPerSecond = 100
	callsAtOnce    = 10
)

// Server answers the API. Only Socket, Pods, Devices and Claims are required.
type Server struct {
	api.UnimplementedPodResourcesListerServer
	// Socket is the path of the socket.
	Socket string
	// Pods returns the pods that have not ended.
	Pods    func() []*corev1.Pod
	Devices *devices.Manager
	Claims  *dra.Manager
	// CPUs and Memory return the exclusive CPUs and the memory of a container.
	CPUs   func(pod types.UID, container string) []int64
	Memory func(pod types.UID, container string) []*api.ContainerMemory
	// AllCPUs and AllMemory return what all containers can have.
	AllCPUs   func() []int64
	AllMemory func() []*api.ContainerMemory
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(s.Socket), 0o750); err != nil {
		return fmt.Errorf("pod resources: %w", err)
	}
	if err := os.Remove(s.Socket); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("pod resources: %w", err)
	}
	listener, err := net.Listen("unix", s.Socket)
	if err != nil {
		return fmt.Errorf("pod resources: %w", err)
	}
	limit := flowcontrol.NewTokenBucketRateLimiter(callsPerSecond, callsAtOnce)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64<<10), grpc.UnaryInterceptor(
		func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if !limit.TryAccept() {
				return nil, status.Errorf(codes.ResourceExhausted, "%s is rejected by the rate limit of %d calls a second", info.FullMethod, callsPerSecond)
			}
			return handle(ctx, request)
		}))
	api.RegisterPodResourcesListerServer(server, s)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
		server.Stop()
		<-stopped
		return nil
	case err := <-stopped:
		return fmt.Errorf("pod resources: %w", err)
	}
}

// List returns the resources of all pods.
func (s *Server) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	out := &api.ListPodResourcesResponse{}
	for _, pod := range s.Pods() {
		out.PodResources = append(out.PodResources, s.pod(pod))
	}
	return out, nil
}

// Get returns the resources of one pod.
func (s *Server) Get(_ context.Context, r *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	for _, pod := range s.Pods() {
		if pod.Namespace == r.PodNamespace && pod.Name == r.PodName {
			return &api.GetPodResourcesResponse{PodResources: s.pod(pod)}, nil
		}
	}
	return nil, fmt.Errorf("pod %s in namespace %s not found", r.PodName, r.PodNamespace)
}

// GetAllocatableResources returns what all containers of the node can have together.
func (s *Server) GetAllocatableResources(context.Context, *api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	out := &api.AllocatableResourcesResponse{Devices: convert(s.Devices.Allocatable())}
	if s.AllCPUs != nil {
		out.CpuIds = s.AllCPUs()
	}
	if s.AllMemory != nil {
		out.Memory = s.AllMemory()
	}
	return out, nil
}

// pod describes the containers that run until the pod ends: sidecars and regular ones.
func (s *Server) pod(pod *corev1.Pod) *api.PodResources {
	out := &api.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; spec.IsSidecar(c) {
			out.Containers = append(out.Containers, s.container(pod, c))
		}
	}
	for i := range pod.Spec.Containers {
		out.Containers = append(out.Containers, s.container(pod, &pod.Spec.Containers[i]))
	}
	return out
}

func (s *Server) container(pod *corev1.Pod, c *corev1.Container) *api.ContainerResources {
	out := &api.ContainerResources{Name: c.Name, Devices: convert(s.Devices.Held(pod.UID, c.Name))}
	if s.CPUs != nil {
		out.CpuIds = s.CPUs(pod.UID, c.Name)
	}
	if s.Memory != nil {
		out.Memory = s.Memory(pod.UID, c.Name)
	}
	for _, claim := range s.Claims.Claims(pod, c) {
		out.DynamicResources = append(out.DynamicResources, dynamic(claim))
	}
	return out
}

func dynamic(claim dra.Claim) *api.DynamicResource {
	out := &api.DynamicResource{ClaimName: claim.Name, ClaimNamespace: claim.Namespace}
	for _, driver := range slices.Sorted(maps.Keys(claim.Devices)) {
		for _, d := range claim.Devices[driver] {
			one := &api.ClaimResource{DriverName: driver, PoolName: d.Pool, DeviceName: d.Device}
			if d.ShareID != "" {
				share := d.ShareID
				one.ShareId = &share
			}
			for _, id := range d.CDI {
				one.CdiDevices = append(one.CdiDevices, &api.CDIDevice{Name: id})
			}
			out.ClaimResources = append(out.ClaimResources, one)
		}
	}
	return out
}

func convert(groups []devices.Group) []*api.ContainerDevices {
	var out []*api.ContainerDevices
	for _, g := range groups {
		one := &api.ContainerDevices{ResourceName: g.Resource, DeviceIds: g.Devices}
		if len(g.Nodes) > 0 {
			one.Topology = &api.TopologyInfo{}
			for _, n := range g.Nodes {
				one.Topology.Nodes = append(one.Topology.Nodes, &api.NUMANode{ID: int64(n)})
			}
		}
		out = append(out, one)
	}
	return out
}
