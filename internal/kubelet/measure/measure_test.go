package measure

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxes is a runtime that makes sandboxes, but not with the handler "broken".
type sandboxes struct {
	internalapi.RuntimeService
}

func (sandboxes) RunPodSandbox(_ context.Context, _ *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	if handler == "broken" {
		return "", errors.New("no such handler")
	}
	return "id", nil
}

// gigabytes is an image service whose images have two gigabytes.
type gigabytes struct {
	internalapi.ImageManagerService
}

func (gigabytes) PullImage(context.Context, *runtimeapi.ImageSpec, *runtimeapi.AuthConfig, *runtimeapi.PodSandboxConfig) (string, error) {
	return "ref", nil
}

func (gigabytes) ImageStatus(context.Context, *runtimeapi.ImageSpec, bool) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Size: 2 << 30}}, nil
}

func TestCallsOfTheRuntimeAreMeasured(t *testing.T) {
	m := New("n1")
	if _, err := m.Runtime(sandboxes{}).RunPodSandbox(t.Context(), nil, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Runtime(sandboxes{}).RunPodSandbox(t.Context(), nil, "broken"); err == nil {
		t.Fatal("no error")
	}
	if _, err := m.Images(gigabytes{}).PullImage(t.Context(), nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	m.Rejected("OutOfcpu")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`kubelet_runtime_operations_total{operation_type="run_podsandbox"} 2`,
		`kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} 1`,
		`kubelet_run_podsandbox_duration_seconds_count{runtime_handler=""} 1`,
		`kubelet_run_podsandbox_errors_total{runtime_handler="broken"} 1`,
		`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="1GB-5GB"} 1`,
		`kubelet_admission_rejections_total{reason="OutOfcpu"} 1`,
		`kubelet_node_name{node="n1"} 1`,
		`kubernetes_build_info{`, "kubelet_cgroup_version ", "process_resident_memory_bytes ", "go_goroutines ",
	} {
		if !strings.Contains(w.Body.String(), "\n"+line) {
			t.Errorf("no line %s", line)
		}
	}
}

func TestImagesHaveAClassOfSize(t *testing.T) {
	for size, want := range map[uint64]string{0: "N/A", 1: "0-10MB", 10 << 20: "0-10MB", 10<<20 + 1: "10MB-100MB", 200 << 30: "GT100GB"} {
		if got := sizeClass(size); got != want {
			t.Errorf("%d bytes: %s, want %s", size, got, want)
		}
	}
}
