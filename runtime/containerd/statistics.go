package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	api "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/containerd/v2/pkg/filters"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/containerd/v2/plugins/services"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// measureHere makes containerd read the usage of containers from their cgroups. By default it asks
// their shims, which would wake them.
func measureHere() {
	all := registry.Graph(func(*plugin.Registration) bool { return false })
	registry.Reset()
	for i := range all {
		one := &all[i]
		if one.Type == plugins.ServicePlugin && one.ID == services.TasksService {
			usual := one.InitFn
			one.InitFn = func(ic *plugin.InitContext) (any, error) {
				service, err := usual(ic)
				if err != nil {
					return nil, err
				}
				return newMeasured(ic, service)
			}
		}
		registry.Register(one)
	}
}

// measured is containerd's task service, except for the usage of containers.
type measured struct {
	api.TasksClient
	tasks      runtime.PlatformRuntime
	containers containers.Store
	groups     groups
}

func newMeasured(ic *plugin.InitContext, service any) (any, error) {
	client, ok := service.(api.TasksClient)
	if !ok {
		return nil, fmt.Errorf("the task service is a %T", service)
	}
	tasks, err := ic.GetByID(plugins.RuntimePluginV2, "task")
	if err != nil {
		return nil, err
	}
	store, err := ic.GetSingle(plugins.MetadataPlugin)
	if err != nil {
		return nil, err
	}
	return &measured{TasksClient: client, tasks: tasks.(runtime.PlatformRuntime), containers: metadata.NewContainerStore(store.(*metadata.DB))}, nil
}

// Metrics implements containerd's task service. It leaves out tasks that have ended.
func (m *measured) Metrics(ctx context.Context, r *api.MetricsRequest, _ ...grpc.CallOption) (*api.MetricsResponse, error) {
	wanted, err := filters.ParseAll(r.Filters...)
	if err != nil {
		return nil, err
	}
	tasks, err := m.tasks.Tasks(ctx, false)
	if err != nil {
		return nil, err
	}
	answer := &api.MetricsResponse{}
	for _, task := range tasks {
		if !wanted.Match(filters.AdapterFunc(func(path []string) (string, bool) {
			switch path[0] {
			case "id":
				return task.ID(), true
			case "namespace":
				return task.Namespace(), true
			}
			return "", false
		})) {
			continue
		}
		at := time.Now()
		data, err := m.measure(ctx, task)
		if err != nil {
			continue // it has ended
		}
		answer.Metrics = append(answer.Metrics, &types.Metric{ID: task.ID(), Timestamp: timestamppb.New(at), Data: data})
	}
	return answer, nil
}

// measure asks the shim if the container's cgroup cannot be read here.
func (m *measured) measure(ctx context.Context, task runtime.Task) (*anypb.Any, error) {
	path, err := m.groups.of(task.ID(), func() (string, error) { return m.groupOf(ctx, task.ID()) })
	if err == nil {
		var data typeurl.Any
		if data, err = usage(path); err == nil {
			return typeurl.MarshalProto(data), nil
		}
		m.groups.forget(task.ID())
	}
	return task.Stats(ctx)
}

// groupOf reads the path of a container's cgroup from its specification.
func (m *measured) groupOf(ctx context.Context, id string) (string, error) {
	container, err := m.containers.Get(ctx, id)
	if err != nil {
		return "", err
	}
	var spec specs.Spec
	if err := typeurl.UnmarshalTo(container.Spec, &spec); err != nil {
		return "", err
	}
	if spec.Linux == nil || len(spec.Linux.CgroupsPath) == 0 || spec.Linux.CgroupsPath[0] != '/' {
		return "", fmt.Errorf("container %s has no absolute path of a cgroup", id)
	}
	return spec.Linux.CgroupsPath, nil
}

// usage reads a cgroup. Its types are those with which a shim answers.
func usage(path string) (typeurl.Any, error) {
	if cgroups.Mode() == cgroups.Unified {
		group, err := cgroup2.Load(path)
		if err != nil {
			return nil, err
		}
		usage, err := group.Stat()
		if err != nil {
			return nil, err
		}
		return typeurl.MarshalAny(usage)
	}
	group, err := cgroup1.Load(cgroup1.StaticPath(path))
	if err != nil {
		return nil, err
	}
	usage, err := group.Stat(cgroup1.IgnoreNotExist)
	if err != nil {
		return nil, err
	}
	return typeurl.MarshalAny(usage)
}

// mostGroups bounds the memory of groups.
const mostGroups = 4096

// groups remembers the paths of containers' cgroups.
type groups struct {
	mu    sync.Mutex
	paths map[string]string
}

func (g *groups) of(id string, read func() (string, error)) (string, error) {
	g.mu.Lock()
	path, ok := g.paths[id]
	g.mu.Unlock()
	if ok {
		return path, nil
	}
	path, err := read()
	if err != nil {
		return "", err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paths == nil || len(g.paths) >= mostGroups {
		g.paths = map[string]string{}
	}
	g.paths[id] = path
	return path, nil
}

func (g *groups) forget(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.paths, id)
}
