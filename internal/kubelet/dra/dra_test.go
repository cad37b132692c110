package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
	"github.com/knarr-project/knarr/internal/kubelet/checkpoint"
	"github.com/knarr-project/knarr/internal/kubelet/fake"
	"github.com/knarr-project/knarr/internal/kubelet/plugins"
	"github.com/knarr-project/knarr/internal/kubelet/plugintest"
)

const driverName = "gpu.example.com"

type bench struct {
	*Manager
	t    *testing.T
	dir  string
	api  *clienttest.Memory
	stop func()

	touched plugintest.Touched
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: plugintest.Dir(t), api: clienttest.NewMemory()}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

// start makes the manager anew, as after a restart.
func (b *bench) start() {
	b.Manager = New(Config{
		Client: b.api, NodeName: "node", Dir: b.dir, WipeDelay: 20 * time.Millisecond, Log: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
		Touched: b.touched.Touch,
	})
	b.stop = plugintest.Run(context.Background(), b.t, b.Run, func(ctx context.Context) error {
		registry := &plugins.Watcher{Dir: b.registry(), Log: b.Log, Handlers: map[string]plugins.Handler{"DRAPlugin": b.Handler(ctx)}}
		return registry.Run(ctx)
	})
}

func (b *bench) registry() string { return filepath.Join(b.dir, "plugins_registry") }

func (b *bench) until(what string, ok func() bool) { b.t.Helper(); plugintest.Until(b.t, what, ok) }

func (b *bench) serve(d *fake.Driver) *fake.Driver {
	b.t.Helper()
	if d.Name == "" {
		d.Name = driverName
	}
	if err := d.Serve(b.registry()); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(d.Stop)
	b.until("the driver is connected", func() bool {
		found := b.driver(d.Name)
		b.Manager.mu.Lock()
		defer b.Manager.mu.Unlock()
		return found != nil && found.connected
	})
	return d
}

// claim makes an allocated claim that is reserved for the pods.
func (b *bench) claim(name string, pods ...string) {
	b.t.Helper()
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{Request: "main/first", Driver: driverName, Pool: "pool", Device: "device-" + name}}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p, UID: types.UID(p)})
	}
	if _, err := client.Create(b.t.Context(), client.Interface(b.api), c); err != nil {
		b.t.Fatal(err)
	}
}

func pod(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	c := corev1.Container{Name: "main"}
	for _, object := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "my-" + object, ResourceClaimName: &object})
		c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: "my-" + object, Request: "main"})
	}
	p.Spec.Containers = []corev1.Container{c}
	return p
}

// calls returns the driver's calls about claims.
func calls(d *fake.Driver) string {
	return strings.Join(slices.DeleteFunc(d.Calls(), func(c string) bool { return strings.HasPrefix(c, "registered") }), ", ")
}

func (b *bench) expect(d *fake.Driver, want string) {
	b.t.Helper()
	if got := calls(d); got != want {
		b.t.Errorf("the driver was called: %q, want %q", got, want)
	}
}

func TestADriverOfEitherVersionPreparesClaims(t *testing.T) {
	for _, beta := range []bool{false, true} {
		t.Run(fmt.Sprint("beta ", beta), func(t *testing.T) {
			b := newBench(t)
			d := b.serve(&fake.Driver{Beta: beta})
			b.claim("one", "pod")
			b.claim("two", "pod")
			p := pod("pod", "one", "two")
			if _, err := b.CDI(p, &p.Spec.Containers[0]); err == nil {
				t.Error("a container of an unprepared claim starts")
			}
			if err := b.Prepare(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			ids, err := b.CDI(p, &p.Spec.Containers[0])
			if err != nil || strings.Join(ids, " ") != "gpu.example.com/device=one gpu.example.com/device=two" {
				t.Errorf("CDI devices %q, %v", ids, err)
			}
			if err := b.Prepare(t.Context(), p); err != nil { // again: it is prepared already
				t.Fatal(err)
			}
			if err := b.Unprepare(t.Context(), p.UID); err != nil {
				t.Fatal(err)
			}
			b.expect(d, "prepare one, prepare two, unprepare one, unprepare two")
		})
	}
}

func TestASharedClaimIsUnpreparedAfterTheLastPod(t *testing.T) {
	b := newBench(t)
	d := b.serve(&fake.Driver{})
	b.claim("one", "a", "b")
	for _, name := range []string{"a", "b"} {
		if err := b.Prepare(t.Context(), pod(name, "one")); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Unprepare(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.expect(d, "prepare one")
	if err := b.Unprepare(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	b.expect(d, "prepare one, unprepare one")
}

func TestClaimsOfRemovedPodsAreUnpreparedAfterARestart(t *testing.T) {
	b := newBench(t)
	d := b.serve(&fake.Driver{Fail: func(call string, _ *draapi.Claim) error {
		if call == "prepare" {
			return errors.New("interrupted")
		}
		return nil
	}})
	b.claim("one", "pod")
	if err := b.Prepare(t.Context(), pod("pod", "one")); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Fatalf("error %v", err)
	}
	b.stop()
	d.Stop()
	b.start()
	if err := b.Retain(t.Context(), func(types.UID) bool { return false }); err == nil || !strings.Contains(err.Error(), "DRA driver gpu.example.com is not registered") {
		t.Errorf("without the driver: %v", err)
	}
	again := b.serve(&fake.Driver{})
	if err := b.Retain(t.Context(), func(types.UID) bool { return false }); err != nil {
		t.Fatal(err)
	}
	b.expect(again, "unprepare one")
	b.stop()
	b.start()
	if err := b.Retain(t.Context(), func(types.UID) bool { return false }); err != nil {
		t.Fatal(err)
	}
}

func TestAPodMayOnlyUseClaimsReservedForIt(t *testing.T) {
	b := newBench(t)
	d := b.serve(&fake.Driver{})
	b.claim("one", "other")
	err := b.Prepare(t.Context(), pod("pod", "one"))
	if err == nil || !strings.Contains(err.Error(), "is not allowed to use ResourceClaim one") {
		t.Errorf("error %v", err)
	}
	b.expect(d, "")
}

func TestExtendedResourcesComeFromTheGeneratedClaim(t *testing.T) {
	b := newBench(t)
	b.serve(&fake.Driver{})
	b.claim("generated", "pod")
	p := pod("pod")
	claim, err := client.Get[*resourcev1.ResourceClaim](t.Context(), b.api, "default", "generated")
	if err != nil {
		t.Fatal(err)
	}
	controller := true
	claim = claim.DeepCopy()
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: "pod", Controller: &controller}}
	if _, err := client.Update(t.Context(), client.Interface(b.api), claim); err != nil {
		t.Fatal(err)
	}
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "generated",
		RequestMappings:   []corev1.ContainerExtendedResourceRequest{{ContainerName: "main", ResourceName: "example.com/gpu", RequestName: "main"}},
	}
	if err := b.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	ids, err := b.CDI(p, &p.Spec.Containers[0])
	if err != nil || len(ids) != 1 {
		t.Errorf("CDI devices %q, %v", ids, err)
	}
}

func TestHealthOfDevicesFollowsTheDriver(t *testing.T) {
	b := newBench(t)
	d := b.serve(&fake.Driver{})
	b.claim("one", "pod")
	p := pod("pod", "one")
	if err := b.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	show := func() string {
		var out []string
		for _, s := range b.Health(p, &p.Spec.Containers[0]) {
			for _, h := range s.Resources {
				text := fmt.Sprint(s.Name, " ", h.ResourceID, " ", h.Health)
				if h.Message != nil {
					text += " " + *h.Message
				}
				out = append(out, text)
			}
		}
		return strings.Join(out, ", ")
	}
	is := func(want string) {
		t.Helper()
		b.until(want, func() bool { return show() == "claim:my-one/main gpu.example.com/pool/device-one "+want })
	}
	is("Unknown")
	d.Report("one", healthapi.HealthStatus_HEALTHY, "", 0)
	is("Healthy")
	d.Report("one", healthapi.HealthStatus_UNHEALTHY, "too hot", 0)
	is("Unhealthy too hot")
	if !slices.Contains(b.touched.Pods(), "pod") {
		t.Error("the pod was not told")
	}
	d.Report("one", healthapi.HealthStatus_HEALTHY, "", 1)
	is("Healthy")
	is("Unknown") // after a second without a report
	d.Report("one", healthapi.HealthStatus_HEALTHY, "", 100)
	is("Healthy")
	d.Stop()
	is("Unknown")
}

func TestSlicesOfAnAbsentDriverAreRemoved(t *testing.T) {
	b := newBench(t)
	slice := func(name, node, driver string) {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.Spec.NodeName, s.Spec.Driver = &node, driver
		if _, err := client.Create(t.Context(), client.Interface(b.api), s); err != nil {
			t.Fatal(err)
		}
	}
	names := func() string {
		list, err := b.api.List(t.Context(), resourceSlices, "", metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range list.(*resourcev1.ResourceSliceList).Items {
			out = append(out, s.Name)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	d := b.serve(&fake.Driver{})
	slice("mine", "node", driverName)
	slice("another-driver", "node", "nic.example.com")
	slice("another-node", "other", driverName)
	d.Stop()
	b.until("the driver's slice is removed", func() bool { return names() == "another-driver another-node" })
	b.stop()
	b.start()
	b.until("the slice of a driver that never came is removed", func() bool { return names() == "another-node" })
}

func TestLongMessagesAreCut(t *testing.T) {
	for in, want := range map[int]int{10: 10, 1024: 1024, 1025: 1024} {
		if got := shorten(strings.Repeat("x", in)); len(got) != want {
			t.Errorf("%d bytes become %d, want %d", in, len(got), want)
		}
	}
	if got := shorten(strings.Repeat("ä", 600)); len(got) != 1023 || !strings.HasSuffix(got, "ä...") {
		t.Errorf("%d bytes, end %q", len(got), got[len(got)-5:])
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(`[{"UID":"a","Namespace":"b","Name":"c","Pods":["d"],"Drivers":{"e":[{"Pool":"p"}]}}]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		dir := t.TempDir()
		if !json.Valid(raw) {
			return
		}
		if err := checkpoint.Write(filepath.Join(dir, checkpointName), json.RawMessage(raw)); err != nil {
			return
		}
		m := New(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
		if err := m.save(); err != nil {
			t.Fatal(err)
		}
	})
}
