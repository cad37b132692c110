package devices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/knarr-project/knarr/internal/kubelet/checkpoint"
	"github.com/knarr-project/knarr/internal/kubelet/fake"
	"github.com/knarr-project/knarr/internal/kubelet/plugins"
	"github.com/knarr-project/knarr/internal/kubelet/plugintest"
)

const gpu = "example.com/gpu"

// bench is a manager with its registration socket.
type bench struct {
	*Manager
	t       *testing.T
	dir     string
	stop    func()
	touched plugintest.Touched

	mu    sync.Mutex
	clock time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: plugintest.Dir(t), clock: time.Now()}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

// start makes the manager anew, as after a restart.
func (b *bench) start() {
	b.Manager = New(Config{
		Dir: filepath.Join(b.dir, "device-plugins"), Log: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
		Now:     func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.clock },
		Touched: b.touched.Touch,
	})
	b.stop = plugintest.Run(context.Background(), b.t, b.Run, func(ctx context.Context) error {
		registry := &plugins.Watcher{
			Dir: filepath.Join(b.dir, "plugins_registry"), Log: b.Log, Handlers: map[string]plugins.Handler{"DevicePlugin": b.Handler(ctx)},
		}
		return registry.Run(ctx)
	})
	b.until("the registration socket is there", func() bool {
		_, err := os.Stat(filepath.Join(b.Dir, socketName))
		return err == nil
	})
}

func (b *bench) until(what string, ok func() bool) { b.t.Helper(); plugintest.Until(b.t, what, ok) }

// plug registers a plugin and waits for its devices.
func (b *bench) plug(p *fake.DevicePlugin, devices ...*pluginapi.Device) *fake.DevicePlugin {
	b.t.Helper()
	if p.Resource == "" {
		p.Resource = gpu
	}
	p.Set(devices...)
	if err := p.Register(b.t.Context(), b.Dir, fmt.Sprint("p", time.Now().UnixNano(), ".sock")); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(p.Stop)
	b.counts(p.Resource, len(devices), len(devices))
	return p
}

func (b *bench) counts(name string, all, healthy int) {
	b.t.Helper()
	b.until(fmt.Sprintf("%s has %d devices, %d of them healthy", name, all, healthy), func() bool {
		capacity, allocatable := b.Capacity()
		c, known := capacity[corev1.ResourceName(name)]
		a := allocatable[corev1.ResourceName(name)]
		return known && c.Value() == int64(all) && a.Value() == int64(healthy)
	})
}

// pod makes a pod; a container is "name count" with a prefix "init " or "sidecar ".
func pod(name string, list ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	for _, text := range list {
		f := strings.Fields(text)
		n := len(f)
		q := corev1.ResourceList{gpu: resource.MustParse(f[n-1])}
		c := corev1.Container{Name: f[n-2], Resources: corev1.ResourceRequirements{Limits: q, Requests: q}}
		switch {
		case n == 2:
			p.Spec.Containers = append(p.Spec.Containers, c)
			continue
		case f[0] == "sidecar":
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	return p
}

func (b *bench) allocate(p *corev1.Pod) error { return b.Allocate(b.t.Context(), p) }

// given lists the pod's devices, such as "main=a,b side=c".
func (b *bench) given(p *corev1.Pod) string {
	var out []string
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, g := range b.Held(p.UID, c.Name) {
			out = append(out, c.Name+"="+strings.Join(g.Devices, ","))
		}
	}
	return strings.Join(out, " ")
}

func TestContainersOfAPodGetDevices(t *testing.T) {
	for name, c := range map[string]struct {
		containers []string
		want, err  string
	}{
		"one container gets its number":                        {[]string{"main 2"}, "main=a,b", ""},
		"two containers get different devices":                 {[]string{"one 1", "two 2"}, "one=a two=b,c", ""},
		"a main container reuses those of an init container":   {[]string{"init prepare 2", "main 3"}, "prepare=a,b main=a,b,c", ""},
		"init containers use the same devices in turn":         {[]string{"init one 1", "init two 2", "main 1"}, "one=a two=a,b main=a", ""},
		"two main containers share what an init container had": {[]string{"init prepare 2", "one 1", "two 1"}, "prepare=a,b one=a two=b", ""},
		"a sidecar keeps its devices to itself":                {[]string{"sidecar proxy 1", "main 2"}, "proxy=a main=b,c", ""},
		"a sidecar takes over those of an init container":      {[]string{"init prepare 1", "sidecar proxy 1", "main 2"}, "prepare=a proxy=a main=b,c", ""},
		"too many are refused": {[]string{"main 4"}, "",
			"requested number of devices unavailable for example.com/gpu. Requested: 4, Available: 3"},
		"a container too many is refused": {[]string{"one 2", "two 2"}, "one=a,b",
			"requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.plug(&fake.DevicePlugin{}, fake.Device("c"), fake.Device("a"), fake.Device("b"))
			p := pod("one", c.containers...)
			err := b.allocate(p)
			if got := fmt.Sprint(err); c.err == "" && err != nil || c.err != "" && got != c.err {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if got := b.given(p); got != c.want {
				t.Errorf("given %q, want %q", got, c.want)
			}
		})
	}
}

func TestDevicesAreFreedWithTheirPod(t *testing.T) {
	b := newBench(t)
	b.plug(&fake.DevicePlugin{}, fake.Device("a"))
	one, two := pod("one", "main 1"), pod("two", "main 1")
	if err := b.allocate(one); err != nil {
		t.Fatal(err)
	}
	if err := b.allocate(two); err == nil {
		t.Fatal("two pods got the same device")
	}
	if err := b.Release(one.UID); err != nil {
		t.Fatal(err)
	}
	if err := b.allocate(two); err != nil {
		t.Fatal(err)
	}
	if err := b.Retain(func(types.UID) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if err := b.allocate(one); err != nil {
		t.Fatal(err)
	}
}

func TestAllocationsSurviveARestart(t *testing.T) {
	b := newBench(t)
	b.plug(&fake.DevicePlugin{}, fake.Device("a", 0), fake.Device("b", 1))
	one := pod("one", "main 1")
	if err := b.allocate(one); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.start()
	if b.Fresh() {
		t.Error("the manager has not found its checkpoint")
	}
	b.counts(gpu, 0, 0) // until the plugin registers again
	if err := b.allocate(one); err != nil {
		t.Errorf("a pod with devices is refused: %v", err)
	}
	if err := b.allocate(pod("two", "main 1")); err == nil || !strings.Contains(err.Error(), "no healthy devices present") {
		t.Errorf("a pod without devices: %v", err)
	}
	d, err := b.Container(t.Context(), one, &one.Spec.Containers[0])
	if err != nil || len(d.Envs) != 1 || string(d.Envs[0].Value) != "[a]" {
		t.Errorf("the container gets %+v, %v", d, err)
	}
	p := b.plug(&fake.DevicePlugin{}, fake.Device("a", 0), fake.Device("b", 1))
	two := pod("two", "main 1")
	if err := b.allocate(two); err != nil || b.given(two) != "main=b" {
		t.Errorf("the second pod gets %q, %v", b.given(two), err)
	}
	if calls := strings.Join(p.Calls(), "; "); calls != "Allocate [b]" {
		t.Errorf("calls after the restart: %s", calls)
	}
}

func TestABrokenCheckpointIsPutAside(t *testing.T) {
	b := newBench(t)
	b.plug(&fake.DevicePlugin{}, fake.Device("a"))
	if err := b.allocate(pod("one", "main 1")); err != nil {
		t.Fatal(err)
	}
	b.stop()
	path := filepath.Join(b.Dir, checkpointName)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(raw), `"one"`, `"two"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	if _, err := os.Stat(path + ".broken"); err != nil {
		t.Error(err)
	}
	if b.Used() {
		t.Error("a checkpoint with a wrong checksum was used")
	}
}

func TestCountsFollowThePlugin(t *testing.T) {
	b := newBench(t)
	p := b.plug(&fake.DevicePlugin{}, fake.Device("a"), fake.Device("b"))
	one := pod("one", "main 1")
	if err := b.allocate(one); err != nil {
		t.Fatal(err)
	}
	health := func() corev1.ResourceHealthStatus { return b.Health("one", "main")[0].Resources[0].Health }
	if health() != corev1.ResourceHealthStatusHealthy {
		t.Errorf("health is %s", health())
	}
	sick := fake.Device("a")
	sick.Health = pluginapi.Unhealthy
	p.Set(sick, fake.Device("b"))
	b.counts(gpu, 2, 1)
	b.until("the pod is told", func() bool { return slices.Contains(b.touched.Pods(), "one") })
	if health() != corev1.ResourceHealthStatusUnhealthy {
		t.Errorf("health is %s", health())
	}
	p.Set(fake.Device("b"))
	b.counts(gpu, 1, 1)
	if health() != corev1.ResourceHealthStatusUnknown {
		t.Errorf("health of a device that is gone is %s", health())
	}
	p.Stop()
	b.counts(gpu, 1, 0)
	b.mu.Lock()
	b.clock = b.clock.Add(removalGrace + time.Second)
	b.mu.Unlock()
	b.counts(gpu, 0, 0)
	b.plug(&fake.DevicePlugin{}, fake.Device("c"))
}

func TestAPluginThatRegistersAgainReplacesItsPredecessor(t *testing.T) {
	b := newBench(t)
	first := b.plug(&fake.DevicePlugin{}, fake.Device("a"))
	b.plug(&fake.DevicePlugin{}, fake.Device("a"), fake.Device("b"))
	first.Stop()
	b.counts(gpu, 2, 2)
	if err := b.allocate(pod("one", "main 2")); err != nil {
		t.Fatal(err)
	}
	if calls := first.Calls(); len(calls) > 0 {
		t.Errorf("the first plugin was called: %v", calls)
	}
}

func TestPluginsOfTheRegistryAreAskedForOptions(t *testing.T) {
	b := newBench(t)
	p := &fake.DevicePlugin{Resource: gpu, Options: &pluginapi.DevicePluginOptions{PreStartRequired: true}}
	p.Set(fake.Device("a"))
	socket := filepath.Join(b.dir, "plugins_registry", "gpu.sock")
	if err := p.Serve(socket, true); err != nil {
		t.Fatal(err)
	}
	b.counts(gpu, 1, 1)
	one := pod("one", "main 1")
	if err := b.allocate(one); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Container(t.Context(), one, &one.Spec.Containers[0]); err != nil {
		t.Fatal(err)
	}
	b.until("all calls are made", func() bool {
		return slices.Contains(p.Calls(), "registered") && slices.Contains(p.Calls(), "Allocate [a]") && slices.Contains(p.Calls(), "PreStartContainer [a]")
	})
	p.Stop() // this removes the socket
	b.counts(gpu, 1, 0)
}

func TestThePluginsPreferenceCounts(t *testing.T) {
	last := func(available, _ []string, count int) []string {
		slices.Sort(available)
		return available[len(available)-count:]
	}
	for name, c := range map[string]struct {
		nodes []int
		want  string
	}{
		"among all devices":            {nil, "main=c,d"},
		"within the wanted NUMA nodes": {[]int{0}, "main=a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.plug(&fake.DevicePlugin{Options: &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, Prefer: last},
				fake.Device("a", 0), fake.Device("b", 0), fake.Device("c", 1), fake.Device("d", 1))
			p := pod("one", "main 2")
			if err := b.Reserve(p, &p.Spec.Containers[0], c.nodes); err != nil {
				t.Fatal(err)
			}
			if err := b.allocate(p); err != nil || b.given(p) != c.want {
				t.Errorf("given %q, %v, want %q", b.given(p), err, c.want)
			}
		})
	}
}

func TestAFailedAllocateGivesDevicesBack(t *testing.T) {
	b := newBench(t)
	fail := true
	b.plug(&fake.DevicePlugin{Answer: func([]string) (*pluginapi.ContainerAllocateResponse, error) {
		if fail {
			return nil, errors.New("no power")
		}
		return &pluginapi.ContainerAllocateResponse{}, nil
	}}, fake.Device("a"))
	one := pod("one", "main 1")
	if err := b.allocate(one); err == nil || !strings.Contains(err.Error(), "no power") {
		t.Errorf("error %v", err)
	}
	fail = false
	if err := b.allocate(pod("two", "main 1")); err != nil {
		t.Error(err)
	}
}

func TestAnswersOfSeveralPluginsAreMerged(t *testing.T) {
	b := newBench(t)
	answer := func(tag string) func([]string) (*pluginapi.ContainerAllocateResponse, error) {
		return func([]string) (*pluginapi.ContainerAllocateResponse, error) {
			return &pluginapi.ContainerAllocateResponse{
				Envs: map[string]string{"BOTH": tag, tag: tag}, Annotations: map[string]string{"both": tag},
				Mounts:     []*pluginapi.Mount{{ContainerPath: "/both", HostPath: "/" + tag, ReadOnly: true}},
				Devices:    []*pluginapi.DeviceSpec{{ContainerPath: "/dev/" + tag, HostPath: "/dev/" + tag, Permissions: "rw"}},
				CdiDevices: []*pluginapi.CDIDevice{{Name: "example.com/both=one"}},
			}, nil
		}
	}
	b.plug(&fake.DevicePlugin{Answer: answer("first")}, fake.Device("a"))
	b.plug(&fake.DevicePlugin{Resource: "example.com/nic", Answer: answer("second")}, fake.Device("a"))
	p := pod("one", "main 1")
	p.Spec.Containers[0].Resources.Limits["example.com/nic"] = resource.MustParse("1")
	if err := b.allocate(p); err != nil {
		t.Fatal(err)
	}
	d, err := b.Container(t.Context(), p, &p.Spec.Containers[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Envs) != 3 || string(d.Envs[0].Value) != "first" || len(d.Mounts) != 1 || d.Mounts[0].HostPath != "/first" || !d.Mounts[0].Readonly ||
		len(d.Devices) != 2 || d.Devices[0].Permissions != "rw" || len(d.CDI) != 1 || d.Annotations["both"] != "first" {
		t.Errorf("merged: %+v", d)
	}
}

func TestRegistrationsAreChecked(t *testing.T) {
	b := newBench(t)
	r := &registration{m: b.Manager, life: t.Context()}
	for _, request := range []*pluginapi.RegisterRequest{
		{Version: "v1", Endpoint: "a.sock", ResourceName: gpu},
		{Version: "v1beta1", Endpoint: "a.sock", ResourceName: "cpu"},
		{Version: "v1beta1", Endpoint: "a.sock", ResourceName: "kubernetes.io/gpu"},
		{Version: "v1beta1", Endpoint: "a.sock", ResourceName: "example.com/g pu"},
		{Version: "v1beta1", Endpoint: "../a.sock", ResourceName: gpu},
		{Version: "v1beta1", Endpoint: "/run/a.sock", ResourceName: gpu},
		{Version: "v1beta1", Endpoint: "kubelet.sock", ResourceName: gpu},
	} {
		if _, err := r.Register(t.Context(), request); err == nil {
			t.Errorf("accepted: %v", request)
		}
	}
	if b.Used() {
		t.Error("a refused plugin has a resource")
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(`{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}},"Checksum":0}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var data checkpointData
		if err := checkpoint.Parse(raw, &data); err != nil && json.Unmarshal(raw, &data) != nil {
			return
		}
		m := &Manager{Config: Config{Log: slog.New(slog.DiscardHandler), Now: time.Now}, resources: map[string]*resourceState{}, pods: map[types.UID]containers{}}
		for _, e := range data.PodDeviceEntries {
			m.restore(e)
		}
		m.snapshot()
	})
}
