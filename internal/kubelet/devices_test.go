package kubelet

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/kubelet/fake"
	"github.com/knarr-project/knarr/internal/kubelet/plugintest"
)

const gpu = "example.com/gpu"

// withGPU makes the main container request one device.
func withGPU(p *corev1.Pod) {
	q := corev1.ResourceList{gpu: resource.MustParse("1")}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: q, Requests: q}
}

// newDeviceBench makes a bench with a device plugin of one device.
func newDeviceBench(t *testing.T, p *fake.DevicePlugin) *bench {
	t.Helper()
	dir := plugintest.Dir(t)
	b := newBench(t, func(b *bench) { b.cfg.RootDir = dir })
	p.Resource = gpu
	p.Set(fake.Device("a"))
	b.plug(p)
	return b
}

// plug registers the plugin and waits until the Node has its device.
func (b *bench) plug(p *fake.DevicePlugin) {
	b.t.Helper()
	dir := filepath.Join(b.cfg.RootDir, "device-plugins")
	plugintest.Until(b.t, "the registration socket is there", func() bool {
		_, err := os.Stat(filepath.Join(dir, "kubelet.sock"))
		return err == nil
	})
	if err := p.Register(b.t.Context(), dir, "gpu.sock"); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(p.Stop)
	plugintest.Until(b.t, "the node has the device", func() bool {
		n, err := client.Get[*corev1.Node](b.t.Context(), b.api, "", "node")
		q := n.Status.Allocatable[gpu]
		return err == nil && q.Value() == 1
	})
}

func TestAPodGetsADeviceAndGivesItBack(t *testing.T) {
	b := newDeviceBench(t, &fake.DevicePlugin{})
	b.create(pod("one", withGPU))
	b.await("one", "ready and shows its device", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return ready(p) && len(s[0].AllocatedResourcesStatus) == 1 && s[0].AllocatedResourcesStatus[0].Name == gpu &&
			s[0].AllocatedResourcesStatus[0].Resources[0].Health == corev1.ResourceHealthStatusHealthy
	})
	b.delete("one")
	b.gone("one")
	b.create(pod("two", withGPU))
	b.await("two", "ready", ready)
}

func TestAPodKeepsItsDeviceAcrossARestart(t *testing.T) {
	p := &fake.DevicePlugin{}
	b := newDeviceBench(t, p)
	b.create(pod("one", withGPU))
	b.await("one", "ready", ready)
	b.stop()
	b.start()
	after := &fake.DevicePlugin{Resource: gpu}
	after.Set(fake.Device("a"))
	b.plug(after)
	b.create(pod("two", withGPU))
	b.await("two", "refused, as the device is taken", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	b.await("one", "ready", ready)
	if calls := after.Calls(); len(calls) > 0 {
		t.Errorf("the plugin was called again: %v", calls)
	}
}

func TestAPodWhosePluginRefusesFails(t *testing.T) {
	b := newDeviceBench(t, &fake.DevicePlugin{Answer: func([]string) (*pluginapi.ContainerAllocateResponse, error) {
		return nil, errors.New("no power")
	}})
	b.create(pod("one", withGPU))
	p := b.await("one", "refused", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	const message = "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = no power, which is unexpected"
	if p.Status.Reason != "UnexpectedAdmissionError" || p.Status.Message != message {
		t.Errorf("reason %q, message %q", p.Status.Reason, p.Status.Message)
	}
}
