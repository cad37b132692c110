package worker

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/spec"

	"golang.org/x/sys/unix"
)

func TestAContainerCountsAsReplacedUntilItsSuccessorRuns(t *testing.T) {
	container := func(id string, attempt uint32, state runtimeapi.ContainerState) *pleg.Container {
		return &pleg.Container{ContainerStatus: &runtimeapi.ContainerStatus{Id: id, State: state, Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: attempt}}}
	}
	const running, exited = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	for name, tc := range map[string]struct {
		containers      []*pleg.Container
		troubled        bool
		replacing, kept bool
	}{
		"the container still runs":   {containers: []*pleg.Container{container("old", 0, running)}, kept: true},
		"the container has ended":    {containers: []*pleg.Container{container("old", 0, exited)}, replacing: true, kept: true},
		"the successor cannot start": {containers: []*pleg.Container{container("old", 0, exited)}, troubled: true},
		"the successor is made": {containers: []*pleg.Container{container("old", 0, exited), container("new", 1, runtimeapi.ContainerState_CONTAINER_CREATED)},
			replacing: true, kept: true},
		"the successor runs":      {containers: []*pleg.Container{container("old", 0, exited), container("new", 1, running)}},
		"the successor has ended": {containers: []*pleg.Container{container("old", 0, exited), container("new", 1, exited)}},
		"no container is left":    {},
	} {
		t.Run(name, func(t *testing.T) {
			w := &Worker{observed: &pleg.Observed{Containers: map[string]*pleg.Container{}}, replaced: map[string]string{"c": "old"}, problems: map[string]problem{}}
			for _, c := range tc.containers {
				w.observed.Containers[c.Id] = c
			}
			if tc.troubled {
				w.problems["c"] = problem{}
			}
			if got := w.replacing(); got != tc.replacing {
				t.Errorf("replacing: %v, want %v", got, tc.replacing)
			}
			if _, kept := w.replaced["c"]; kept != tc.kept {
				t.Errorf("kept: %v, want %v", kept, tc.kept)
			}
		})
	}
}

func TestTerminationMessagesComeFromTheNodeAgentsOwnFileOnly(t *testing.T) {
	dir := t.TempDir()
	own := spec.TerminationFile(dir, "c", 2)
	if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, []byte("last words"), 0o644); err != nil {
		t.Fatal(err)
	}
	const inside = "/dev/termination-log"
	mount := func(path string) *runtimeapi.Mount {
		return &runtimeapi.Mount{ContainerPath: inside, HostPath: path}
	}
	for name, tc := range map[string]struct {
		annotation string
		mounts     []*runtimeapi.Mount
		want       string
	}{
		"it is mounted":                      {inside, []*runtimeapi.Mount{mount(own)}, own},
		"a volume is mounted there too":      {inside, []*runtimeapi.Mount{mount("/etc/shadow"), mount(own)}, own},
		"only a volume is mounted there":     {inside, []*runtimeapi.Mount{mount("/etc/shadow")}, ""},
		"the container has no such path":     {"", []*runtimeapi.Mount{mount(own)}, ""},
		"the file of another is mounted":     {inside, []*runtimeapi.Mount{mount(spec.TerminationFile(dir, "d", 2))}, ""},
		"nothing is mounted":                 {inside, nil, ""},
		"the path is written in another way": {"/dev/./termination-log", []*runtimeapi.Mount{mount(own)}, own},
	} {
		t.Run(name, func(t *testing.T) {
			r := &pleg.Container{ContainerStatus: &runtimeapi.ContainerStatus{
				Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: 2}, Mounts: tc.mounts,
				Annotations: map[string]string{spec.AnnotationTerminationPath: tc.annotation},
			}}
			if got := terminationPath(dir, r); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(unix.Mkfifo(pipe, 0o666), os.Symlink(own, link)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{own: "last", pipe: "", link: "", dir: "", filepath.Join(dir, "missing"): ""} {
		if got := readTail(path, 4, false); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
