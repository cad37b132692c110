package cri

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// testConfig returns the configuration of a runtime in folders of its own, with a registry that has
// the pause image. The test's end purges it.
func testConfig(t testing.TB) Config {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	programs, err := Unpack(t.TempDir())
	if errors.Is(err, ErrNoRuntime) {
		t.Skip("built without the runtime programs")
	}
	if err != nil {
		t.Fatal(err)
	}
	pause, err := os.ReadFile(filepath.Join(programs, "pause"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))))
	t.Cleanup(server.Close)
	pushImage(t, strings.TrimPrefix(server.URL, "http://")+"/pause:3.10.2", pause)
	config := Config{
		DataDir: t.TempDir(),
		Mirrors: map[string][]string{"registry.k8s.io": {server.URL}},
		Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := Purge(ctx, config); err != nil {
			t.Error(err)
		}
	})
	return config
}

// pushImage pushes an image with one program.
func pushImage(t testing.TB, reference string, program []byte) {
	t.Helper()
	var content bytes.Buffer
	writer := tar.NewWriter(&content)
	if err := writer.WriteHeader(&tar.Header{Name: "program", Mode: 0o755, Size: int64(len(program))}); err != nil {
		t.Fatal(err)
	}
	_, _ = writer.Write(program)
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file.OS, file.Architecture = "linux", "amd64"
	file.Config.Entrypoint = []string{"/program"}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		t.Fatal(err)
	}
	parsed, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(parsed, image); err != nil {
		t.Fatal(err)
	}
}

// testPod returns a pod in the host's network, which needs no CNI plugin.
func testPod(t testing.TB) *runtimeapi.PodSandboxConfig {
	host := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "default", Uid: "uid-1"},
		LogDirectory: t.TempDir(),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    "/knarr-test-" + shortHash(t.TempDir()) + "/pod",
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: host},
		},
	}
}

// removeCgroups removes the cgroups that runc made below the test's parent, in every hierarchy.
func removeCgroups(t testing.TB, parent string) {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*")
	for _, root := range append(roots, "/sys/fs/cgroup") {
		for _, dir := range []string{parent, filepath.Dir(parent)} {
			if err := syscall.Rmdir(filepath.Join(root, dir)); err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ENOTDIR) {
				t.Error("remove cgroup", filepath.Join(root, dir), err)
			}
		}
	}
}

func TestAPodOutlivesTheRuntimeAndKnarr(t *testing.T) {
	config := testConfig(t)
	ctx := t.Context()
	running, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	runtime, err := Start(running, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("first start to ready: %v", time.Since(began))
	pod := testPod(t)
	defer removeCgroups(t, pod.Linux.CgroupParent)
	events := make(chan *runtimeapi.ContainerEventResponse, 10)
	go func() { _ = runtime.Runtime.GetContainerEvents(ctx, events, nil) }()

	began = time.Now()
	sandbox, err := runtime.Runtime.RunPodSandbox(ctx, pod, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("sandbox: %v", time.Since(began))
	defer func() { removePod(t, config, sandbox) }()
	image := &runtimeapi.ImageSpec{Image: DefaultSandboxImage}
	began = time.Now()
	container, err := runtime.Runtime.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "sleeper"}, Image: image, LogPath: "sleeper.log",
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: pod.Linux.SecurityContext.NamespaceOptions,
			Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
		}},
	}, pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.Runtime.StartContainer(ctx, container); err != nil {
		t.Fatal(err)
	}
	t.Logf("container: %v", time.Since(began))
	waitFor(t, events, container, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)

	// containerd dies: it is restarted and still knows the container.
	first := runtime.PID()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "containerd runs again", func() bool { return runtime.PID() != first && answers(runtime.Socket, runtime.PID()) })
	mustRun(t, runtime.Services, container)

	// knarr stops and starts, and containerd with it.
	stop()
	runtime.Wait()
	if answers(runtime.Socket, runtime.PID()) {
		t.Fatal("containerd still answers after the end of its context")
	}
	again, stopAgain := context.WithCancel(ctx)
	defer stopAgain()
	began = time.Now()
	if runtime, err = Start(again, config); err != nil {
		t.Fatal(err)
	}
	t.Logf("second start to ready: %v", time.Since(began))
	mustRun(t, runtime.Services, container)
	stopAgain()
	runtime.Wait()
}

func TestARunningContainerdIsAdoptedUnlessItsConfigurationDiffers(t *testing.T) {
	config := testConfig(t)
	running, stop := context.WithCancel(t.Context())
	defer stop()
	runtime, err := Start(running, config)
	if err != nil {
		t.Fatal(err)
	}
	// Simulate a killed knarr: the lock is free, containerd keeps running.
	completed, err := config.complete()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		image    string
		adopted  bool
		snapshot string
	}{
		{name: "the same configuration", adopted: true},
		{name: "another sandbox image", image: "registry.k8s.io/pause:3.10", adopted: false},
	} {
		changed := completed
		if test.image != "" {
			changed.SandboxImage = test.image
		}
		other := &Runtime{Socket: completed.socket(), config: changed}
		if err := other.writeFiles(); err != nil {
			t.Fatal(err)
		}
		found, same, err := adopt(completed.RunDir, other.fingerprint)
		if err != nil || found == nil || found.pid != runtime.PID() {
			t.Fatalf("%s: adopt found %v, error %v", test.name, found, err)
		}
		if same != test.adopted {
			t.Errorf("%s: adopted %t, want %t", test.name, same, test.adopted)
		}
	}
	stop()
	runtime.Wait()
	if found, _, err := adopt(completed.RunDir, ""); found != nil || err != nil {
		t.Errorf("after the stop adopt still finds %v, error %v", found, err)
	}
}

func TestAContainerThatTakesTooMuchMemoryIsOOMKilled(t *testing.T) {
	config := testConfig(t)
	file := filepath.Join(t.TempDir(), "eater")
	build := exec.Command("go", "build", "-o", file, "./testdata/eater")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pushImage(t, strings.TrimPrefix(config.Mirrors["registry.k8s.io"][0], "http://")+"/eater:1", program)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runtime, err := Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	pod := testPod(t)
	defer removeCgroups(t, pod.Linux.CgroupParent)
	sandbox, err := runtime.Runtime.RunPodSandbox(ctx, pod, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { removePod(t, config, sandbox) }()
	image := &runtimeapi.ImageSpec{Image: "registry.k8s.io/eater:1"}
	if _, err := runtime.Images.PullImage(ctx, image, nil, pod); err != nil {
		t.Fatal(err)
	}
	container, err := runtime.Runtime.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "eater"}, Image: image, LogPath: "eater.log",
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 << 20, MemorySwapLimitInBytes: 32 << 20},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: pod.Linux.SecurityContext.NamespaceOptions},
		},
	}, pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.Runtime.StartContainer(ctx, container); err != nil {
		t.Fatal(err)
	}
	var status *runtimeapi.ContainerStatusResponse
	eventually(t, "the container has ended", func() bool {
		status, err = runtime.Runtime.ContainerStatus(ctx, container, false)
		return err == nil && status.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	if status.Status.ExitCode != 137 || status.Status.Reason != "OOMKilled" {
		t.Errorf("it ended with code %d, reason %q", status.Status.ExitCode, status.Status.Reason)
	}
	cancel()
	runtime.Wait()
}

func TestPurgeLeavesNothingOfPodsThatRun(t *testing.T) {
	config := testConfig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runtime, err := Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	pod := testPod(t)
	defer removeCgroups(t, pod.Linux.CgroupParent)
	startPod(t, runtime.Services, pod)
	cancel()
	runtime.Wait()
	completed, err := config.complete()
	if err != nil {
		t.Fatal(err)
	}
	// Purge without containerd's help, as with damaged data.
	if err := os.RemoveAll(filepath.Join(completed.root(), "io.containerd.metadata.v1.bolt")); err != nil {
		t.Fatal(err)
	}
	if err := Purge(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if pids := programPIDs(completed.binDir()); len(pids) != 0 {
		t.Errorf("programs still run: %v", pids)
	}
	for _, dir := range []string{completed.root(), completed.RunDir, completed.binDir()} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	// runc could not delete the containers, so the test waits and removes their cgroups.
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		left := 0
		for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			dirs, _ := filepath.Glob(filepath.Join(root, pod.Linux.CgroupParent, "*"))
			for _, dir := range dirs {
				if info, err := os.Stat(dir); err == nil && info.IsDir() && syscall.Rmdir(dir) != nil {
					left++
				}
			}
		}
		if left == 0 {
			break
		}
	}
}

func removePod(t *testing.T, config Config, sandbox string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	runtime, err := Start(ctx, config)
	if err != nil {
		t.Error(err)
		return
	}
	if err := runtime.Runtime.StopPodSandbox(ctx, sandbox); err != nil {
		t.Error(err)
	}
	if err := runtime.Runtime.RemovePodSandbox(ctx, sandbox); err != nil {
		t.Error(err)
	}
	cancel()
	runtime.Wait()
}

func mustRun(t *testing.T, services *Services, container string) {
	t.Helper()
	var status *runtimeapi.ContainerStatusResponse
	eventually(t, "the container is known", func() bool {
		var err error
		status, err = services.Runtime.ContainerStatus(t.Context(), container, false)
		return err == nil
	})
	if status.Status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Fatalf("the container is %v: %s", status.Status.State, status.Status.Message)
	}
}

func waitFor(t *testing.T, events <-chan *runtimeapi.ContainerEventResponse, container string, kind runtimeapi.ContainerEventType) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case event := <-events:
			if event.ContainerId == container && event.ContainerEventType == kind {
				return
			}
		case <-deadline:
			t.Fatalf("no event %v for container %s", kind, container)
		}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
