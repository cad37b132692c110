package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	proxyutil "k8s.io/apimachinery/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// find returns the request's pod, or answers 404.
func (s *Server) find(w http.ResponseWriter, r *http.Request) (worker.View, bool) {
	v, ok := s.Pods.Find(r.PathValue("namespace"), r.PathValue("pod"), types.UID(r.PathValue("uid")))
	if !ok {
		http.Error(w, fmt.Sprintf("pod %q does not exist", r.PathValue("pod")), http.StatusNotFound)
	}
	return v, ok
}

// running returns the request's container if it runs, or answers with an error.
func (s *Server) running(w http.ResponseWriter, r *http.Request) (*pleg.Container, bool) {
	v, ok := s.find(w, r)
	if !ok {
		return nil, false
	}
	name := r.PathValue("container")
	for _, c := range v.Containers {
		if c.Name() == name && c.Running() {
			return c, true
		}
	}
	if spec.FindContainer(v.Pod, name) == nil {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", name, v.Pod.Name), http.StatusNotFound)
		return nil, false
	}
	http.Error(w, fmt.Sprintf("unable to upgrade connection: container not found (%q)", name), http.StatusInternalServerError)
	return nil, false
}

func flag(r *http.Request, names ...string) bool {
	for _, n := range names {
		if v := r.FormValue(n); v == "1" || v == "true" {
			return true
		}
	}
	return false
}

// streams reads the requested streams. It accepts the kubelet's parameter names and the API's.
func streams(r *http.Request) (stdin, stdout, stderr, tty bool, err error) {
	stdin, stdout, stderr = flag(r, "input", "stdin"), flag(r, "output", "stdout"), flag(r, "error", "stderr")
	tty = flag(r, "tty")
	if tty {
		stderr = false // a terminal has one output only
	}
	if !stdin && !stdout && !stderr {
		err = fmt.Errorf("you must specify at least 1 of stdin, stdout, stderr")
	}
	return stdin, stdout, stderr, tty, err
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	c, ok := s.running(w, r)
	if !ok {
		return
	}
	stdin, stdout, stderr, tty, err := streams(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	resp, err := s.Runtime.Exec(r.Context(), &runtimeapi.ExecRequest{
		ContainerId: c.Id, Cmd: r.Form["command"], Stdin: stdin, Stdout: stdout, Stderr: stderr, Tty: tty,
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	forward(w, r, resp.Url)
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	c, ok := s.running(w, r)
	if !ok {
		return
	}
	stdin, stdout, stderr, tty, err := streams(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	resp, err := s.Runtime.Attach(r.Context(), &runtimeapi.AttachRequest{ContainerId: c.Id, Stdin: stdin, Stdout: stdout, Stderr: stderr, Tty: tty})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	forward(w, r, resp.Url)
}

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	v, ok := s.find(w, r)
	if !ok {
		return
	}
	var sandbox *pleg.Sandbox
	for _, sb := range v.Sandboxes {
		if sb.Ready() {
			sandbox = sb
		}
	}
	if sandbox == nil {
		http.Error(w, fmt.Sprintf("unable to upgrade connection: sandbox of pod %q not found", v.Pod.Name), http.StatusInternalServerError)
		return
	}
	var ports []int32
	_ = r.ParseForm()
	for _, list := range append(r.Form["port"], r.Form["ports"]...) {
		for _, p := range strings.Split(list, ",") {
			n, err := strconv.ParseUint(p, 10, 16)
			if err != nil || n == 0 {
				http.Error(w, fmt.Sprintf("invalid port %q", p), http.StatusBadRequest)
				return
			}
			ports = append(ports, int32(n))
		}
	}
	resp, err := s.Runtime.PortForward(r.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: sandbox.Id, Port: ports})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	forward(w, r, resp.Url)
}

// forward connects the client with the runtime's streaming server.
func forward(w http.ResponseWriter, r *http.Request, to string) {
	u, err := url.Parse(to)
	if err != nil {
		http.Error(w, fmt.Sprintf("the runtime's streaming address %q: %v", to, err), http.StatusInternalServerError)
		return
	}
	h := proxyutil.NewUpgradeAwareHandler(u, nil, false, true, responder{})
	h.ServeHTTP(w, r)
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// run executes a command and answers with its output.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	c, ok := s.running(w, r)
	if !ok {
		return
	}
	stdout, stderr, err := s.Runtime.ExecSync(r.Context(), c.Id, strings.Split(r.FormValue("cmd"), " "), 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(append(stdout, stderr...))
}
