package cri

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkFiftyPodsAtOnce starts and removes 50 pods of one container each, without a pod network,
// and logs containerd's memory usage.
func BenchmarkFiftyPodsAtOnce(b *testing.B) {
	config := testConfig(b)
	runtime, err := Start(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("idle: %s", memory(runtime.PID()))
	// The first pod pulls the image.
	group := testPod(b)
	defer removeCgroups(b, group.Linux.CgroupParent)
	for b.Loop() {
		for _, count := range []int{1, 1, 50} {
			began := time.Now()
			sandboxes := make([]string, count)
			var pods sync.WaitGroup
			for i := range count {
				pods.Go(func() {
					pod := testPod(b)
					pod.Linux.CgroupParent = group.Linux.CgroupParent
					pod.Metadata.Uid = fmt.Sprint("uid-", i)
					pod.Metadata.Name = fmt.Sprint("pod-", i)
					sandboxes[i] = startPod(b, runtime.Services, pod)
				})
			}
			pods.Wait()
			started := time.Since(began)
			using := memory(runtime.PID())
			began = time.Now()
			for _, sandbox := range sandboxes {
				pods.Go(func() {
					if err := runtime.Runtime.StopPodSandbox(b.Context(), sandbox); err != nil {
						b.Error(err)
					}
					if err := runtime.Runtime.RemovePodSandbox(b.Context(), sandbox); err != nil {
						b.Error(err)
					}
				})
			}
			pods.Wait()
			b.Logf("%d pods: started in %v, removed in %v; containerd with them: %s", count, started, time.Since(began), using)
		}
	}
	b.Logf("idle again: %s", memory(runtime.PID()))
}

func startPod(t testing.TB, services *Services, pod *runtimeapi.PodSandboxConfig) string {
	ctx := t.Context()
	sandbox, err := services.Runtime.RunPodSandbox(ctx, pod, "")
	if err != nil {
		t.Error(err)
		return ""
	}
	container, err := services.Runtime.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "sleeper"}, Image: &runtimeapi.ImageSpec{Image: DefaultSandboxImage}, LogPath: "sleeper.log",
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: pod.Linux.SecurityContext.NamespaceOptions}},
	}, pod)
	if err == nil {
		err = services.Runtime.StartContainer(ctx, container)
	}
	if err != nil {
		t.Error(err)
	}
	return sandbox
}

func memory(pid int) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err.Error()
	}
	var lines []string
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(lines, ", ")
}
