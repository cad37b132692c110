package podresources

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/knarr-project/knarr/internal/kubelet/devices"
	"github.com/knarr-project/knarr/internal/kubelet/dra"
	"github.com/knarr-project/knarr/internal/kubelet/plugins"
	"github.com/knarr-project/knarr/internal/kubelet/plugintest"
)

// serve runs a server with one pod and returns a client.
func serve(t *testing.T) api.PodResourcesListerClient {
	t.Helper()
	dir := plugintest.Dir(t)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", UID: "one"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: &always}}, Containers: []corev1.Container{{Name: "main"}},
	}}
	s := &Server{
		Socket: filepath.Join(dir, "pod-resources", "kubelet.sock"), Pods: func() []*corev1.Pod { return []*corev1.Pod{pod} },
		Devices: devices.New(devices.Config{Dir: dir, Log: log}), Claims: dra.New(dra.Config{Dir: dir, Log: log}),
	}
	t.Cleanup(plugintest.Run(context.Background(), t, s.Run))
	connection, err := plugins.Dial(s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return api.NewPodResourcesListerClient(connection)
}

func TestPodsAreListedWithTheContainersThatKeepRunning(t *testing.T) {
	c := serve(t)
	list, err := c.List(t.Context(), &api.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if len(list.PodResources) != 1 || len(list.PodResources[0].Containers) != 2 || list.PodResources[0].Containers[0].Name != "sidecar" {
		t.Errorf("listed: %v", list)
	}
	one, err := c.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "default", PodName: "one"})
	if err != nil || one.PodResources.Name != "one" {
		t.Errorf("got %v, %v", one, err)
	}
	if _, err := c.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "default", PodName: "two"}); err == nil {
		t.Error("a pod that does not exist was found")
	}
	if _, err := c.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{}); err != nil {
		t.Error(err)
	}
}

func TestTooManyCallsAreRefused(t *testing.T) {
	c := serve(t)
	refused := make(chan error, 500)
	for range cap(refused) {
		go func() {
			_, err := c.List(t.Context(), &api.ListPodResourcesRequest{}, grpc.WaitForReady(true))
			refused <- err
		}()
	}
	count := 0
	for range cap(refused) {
		if err := <-refused; status.Code(err) == codes.ResourceExhausted {
			count++
		} else if err != nil {
			t.Error(err)
		}
	}
	if count == 0 {
		t.Error("500 calls at once were all answered")
	}
}
