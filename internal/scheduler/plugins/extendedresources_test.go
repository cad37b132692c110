package plugins_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

const gpus = corev1.ResourceName("example.com/gpu")

// container asks for CPU and for a number of a resource; 0 asks for none.
func container(name string, resourceName corev1.ResourceName, count int64) corev1.Container {
	c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}}}
	if count > 0 {
		c.Resources.Requests[resourceName] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return c
}

func sidecar(c corev1.Container) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func wanting(count int64, resourceName corev1.ResourceName) *corev1.Pod {
	p := pod("p")
	p.Spec.Containers = []corev1.Container{container("c", resourceName, count)}
	return p
}

// classOf makes a class with an extended resource, born some seconds after others.
func classOf(name string, extended corev1.ResourceName, born int64) *resourcev1.DeviceClass {
	text := string(extended)
	return &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(born, 0))},
		Spec:       resourcev1.DeviceClassSpec{ExtendedResourceName: &text},
	}
}

// decideExtended returns the node and the claim to create there, or the message. Node c has a
// device plugin.
func decideExtended(r *rack, p *corev1.Pod) string {
	withPlugin := node("c", nil)
	withPlugin.Status.Allocatable[gpus] = resource.MustParse("1")
	snapshot := snapshotOf(nil, []*corev1.Node{node("a", nil), node("b", nil), withPlugin}, nil)
	snapshot.Devices = func() (framework.Devices, error) { return r, nil }
	profile := plugins.Default(corev1.DefaultSchedulerName)
	d := scheduler.Decide(scheduler.Input{Snapshot: snapshot, Pod: framework.NewPodInfo(p), Profile: &profile})
	if d.Node == "" {
		return d.Message()
	}
	out := []string{d.Node}
	decided, ok := d.State[framework.DynamicResources].(framework.DeviceDecisions)
	if !ok {
		return d.Node
	}
	own := decided.Extended(d.Node)
	if own == nil {
		return d.Node
	}
	for _, r := range own.Claim.Spec.Devices.Requests {
		out = append(out, fmt.Sprintf("%s=%dx%s", r.Name, r.Exactly.Count, r.Exactly.DeviceClassName))
	}
	for _, m := range own.Mappings {
		out = append(out, m.ContainerName+">"+m.RequestName)
	}
	if n := len(decided.On(d.Node)[own.Claim.Name].Devices.Results); n == 0 {
		out = append(out, "without devices")
	}
	return strings.Join(out, " ")
}

func TestExtendedResourcesOfDeviceClasses(t *testing.T) {
	const short, refused = "0/3 nodes are available: ", "cannot schedule extended resource claim"
	withClass := func(r *rack, classes ...*resourcev1.DeviceClass) *rack {
		for _, c := range classes {
			r.class[c.Name] = c
		}
		return r
	}
	leftover := func(r *rack) *rack {
		r.leftover = resourceClaim("old", "gpu")
		return r
	}
	both := pod("p")
	both.Spec.Containers = []corev1.Container{container("c", gpus, 1), container("d", gpus, 2)}
	inits := pod("p")
	inits.Spec.InitContainers = []corev1.Container{container("i", gpus, 3), sidecar(container("s", gpus, 1)), container("j", gpus, 4), container("k", gpus, 1)}
	inits.Spec.Containers = []corev1.Container{container("c", gpus, 1)}
	for name, tc := range map[string]struct {
		rack *rack
		pod  *corev1.Pod
		want string
	}{
		"without a class the resource is missing": {newRack(map[string]string{"a": "x y"}), wanting(2, gpus), short + "3 Insufficient example.com/gpu."},
		"a device plugin is enough":               {newRack(nil), wanting(1, gpus), "c"},
		"a device plugin goes before the class":   {withClass(newRack(nil), classOf("gpu", gpus, 1)), wanting(1, gpus), "c"},
		"the class provides devices":              {withClass(newRack(map[string]string{"b": "x y"}), classOf("gpu", gpus, 1)), wanting(2, gpus), "b container-0-request-1=2xgpu c>container-0-request-1"},
		"too few devices refuse": {
			withClass(newRack(map[string]string{"b": "x"}), classOf("gpu", gpus, 1)), wanting(2, gpus), short + "1 Insufficient example.com/gpu, 2 cannot allocate all claims.",
		},
		"the name of a class is a resource": {
			newRack(map[string]string{"b": "x"}), wanting(1, corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix+"gpu")), "b container-0-request-1=1xgpu c>container-0-request-1",
		},
		"the newest class wins": {
			withClass(newRack(map[string]string{"b": "big1 big2"}), classOf("gpu", gpus, 1), classOf("new", gpus, 3), classOf("other", gpus, 2)), wanting(2, gpus),
			"b container-0-request-1=2xnew c>container-0-request-1",
		},
		"the first name wins among classes of the same age": {
			withClass(newRack(map[string]string{"b": "x y"}), classOf("n", gpus, 1), classOf("m", gpus, 1)), wanting(2, gpus),
			"b container-0-request-1=2xm c>container-0-request-1",
		},
		"each container has its own request": {
			withClass(newRack(map[string]string{"a": "x y z"}), classOf("gpu", gpus, 1)), both,
			"a container-0-request-1=1xgpu container-1-request-1=2xgpu c>container-0-request-1 d>container-1-request-1",
		},
		"init containers use the devices of later containers": {
			withClass(newRack(map[string]string{"a": "v w x y z"}), classOf("gpu", gpus, 1)), inits,
			"a container-1-request-1=1xgpu container-2-request-1=3xgpu container-4-request-1=1xgpu " +
				"s>container-1-request-1 c>container-4-request-1 " +
				"i>container-1-request-1 i>container-4-request-1 i>container-2-request-1 " +
				"j>container-4-request-1 j>container-2-request-1 k>container-4-request-1",
		},
		"the claim of an earlier attempt must go first": {leftover(withClass(newRack(map[string]string{"b": "x y"}), classOf("gpu", gpus, 1))), wanting(2, gpus), short + "1 Insufficient example.com/gpu, 2 " + refused + "."},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decideExtended(tc.rack, tc.pod); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
