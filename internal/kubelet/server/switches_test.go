package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

type allowed struct{}

func (allowed) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	return auth.Allow, "", nil
}

// ask returns the answer of a server with open doors.
func ask(t *testing.T, c Config, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	c.Authenticator, c.Authorizer, c.NodeName, c.Log = anyUser{}, allowed{}, "n1", slog.New(slog.NewTextHandler(t.Output(), nil))
	if c.Pods == nil {
		c.Pods = onePod{}
	}
	w := httptest.NewRecorder()
	(&Server{c}).Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// onePod is a node with the pod default/one, whose container main runs.
type onePod struct{}

func (onePod) Find(namespace, name string, _ types.UID) (worker.View, bool) {
	if namespace != "default" || name != "one" {
		return worker.View{}, false
	}
	c := &pleg.Container{ContainerStatus: &runtimeapi.ContainerStatus{
		Id: "id", Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	return worker.View{Pod: pod, Containers: []*pleg.Container{c}}, true
}

func (p onePod) Views() []worker.View { return nil }

func TestSwitchesTurnHandlersOff(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		switches Switches
		method   string
		path     string
		code     int
		text     string
	}{
		"profiles by default":          {path: "/debug/pprof/cmdline", code: 200},
		"flags by default":             {method: "PUT", path: "/debug/flags/v", code: 400},
		"logs by default":              {path: "/logs/", code: 200},
		"no profiles":                  {switches: Switches{NoProfiles: true}, path: "/debug/pprof/cmdline", code: 405, text: "profiling endpoint is disabled."},
		"no flags":                     {switches: Switches{NoFlags: true}, method: "PUT", path: "/debug/flags/v", code: 405, text: "flags endpoint is disabled."},
		"no logs":                      {switches: Switches{NoSystemLogs: true}, path: "/logs/", code: 405, text: "logs endpoint is disabled."},
		"no debugging: logs":           {switches: Switches{NoDebugging: true}, path: "/logs/", code: 405, text: "Debug endpoints are disabled."},
		"no debugging: container logs": {switches: Switches{NoDebugging: true}, path: "/containerLogs/default/one/main", code: 405, text: "Debug endpoints are disabled."},
		"no debugging: exec":           {switches: Switches{NoDebugging: true}, method: "POST", path: "/exec/default/one/main", code: 405, text: "Debug endpoints are disabled."},
		"no debugging: profiles":       {switches: Switches{NoDebugging: true}, path: "/debug/pprof/", code: 405, text: "Debug endpoints are disabled."},
		"no debugging: flags":          {switches: Switches{NoDebugging: true}, method: "PUT", path: "/debug/flags/v", code: 404},
		"no debugging: pods":           {switches: Switches{NoDebugging: true}, path: "/pods", code: 200},
	} {
		t.Run(name, func(t *testing.T) {
			if c.method == "" {
				c.method = "GET"
			}
			w := ask(t, Config{SystemLogs: dir, Switches: c.switches}, c.method, c.path)
			if w.Code != c.code || c.text != "" && strings.TrimSpace(w.Body.String()) != c.text {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

func TestLinksOutOfTheLogFolderAreNotFollowed(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outside, "secret"), "secret")
	write(filepath.Join(dir, "app.log"), "inside")
	for link, to := range map[string]string{"out": filepath.Join(outside, "secret"), "folder": outside, "absolute": filepath.Join(dir, "app.log"), "relative": "app.log"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"/logs/app.log": "inside", "/logs/absolute": "inside", "/logs/relative": "inside",
		"/logs/out": "404 page not found\n", "/logs/folder/secret": "404 page not found\n",
	} {
		if w := ask(t, Config{SystemLogs: dir}, "GET", path); w.Body.String() != want {
			t.Errorf("%s: %d %q", path, w.Code, w.Body)
		}
	}
}

// checkpointing is a runtime that makes checkpoints, or not.
type checkpointing struct {
	internalapi.RuntimeService
	err error
	got *runtimeapi.CheckpointContainerRequest
}

func (c *checkpointing) CheckpointContainer(_ context.Context, r *runtimeapi.CheckpointContainerRequest) error {
	c.got = r
	return c.err
}

func TestCheckpointsOfContainers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	for name, c := range map[string]struct {
		path string
		err  error
		code int
		text string
	}{
		"a running container":          {path: "/checkpoint/default/one/main?timeout=7", code: 200, text: `{"items":["` + dir + `/checkpoint-one_default-main-`},
		"no such pod":                  {path: "/checkpoint/default/two/main", code: 404},
		"no such container":            {path: "/checkpoint/default/one/other", code: 404, text: "container other does not exist"},
		"a wrong time":                 {path: "/checkpoint/default/one/main?timeout=soon", code: 400, text: `timeout: "soon" is not usable`},
		"a runtime that cannot":        {path: "/checkpoint/default/one/main", err: status.Error(codes.Unimplemented, "no criu"), code: 404, text: "no criu"},
		"a checkpoint that goes wrong": {path: "/checkpoint/default/one/main", err: errors.New("frozen"), code: 500, text: "checkpointing of default/one/main failed (frozen)"},
	} {
		t.Run(name, func(t *testing.T) {
			runtime := &checkpointing{err: c.err}
			w := ask(t, Config{Runtime: runtime, Checkpoints: dir}, "POST", c.path)
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.text) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if c.code == 200 && (runtime.got.ContainerId != "id" || runtime.got.Timeout != 7 || filepath.Dir(runtime.got.Location) != dir) {
				t.Errorf("request: %v", runtime.got)
			}
		})
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info, err)
	}
	if w := ask(t, Config{}, "POST", "/checkpoint/default/one/main"); w.Code != http.StatusNotFound {
		t.Errorf("with the gate off: %d", w.Code)
	}
}
