package server

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sort"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	crilogs "k8s.io/cri-client/pkg/logs"

	"github.com/knarr-project/knarr/internal/kubelet/logs"
	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// logOptions reads the parameters of a request for logs (PodLogOptions).
func logOptions(r *http.Request) (o crilogs.LogOptions, previous bool, err error) {
	_ = r.ParseForm()
	number := func(name string) *int64 {
		v := r.Form.Get(name)
		if v == "" || err != nil {
			return nil
		}
		n, e := strconv.ParseInt(v, 10, 64)
		if e != nil {
			err = fmt.Errorf("%s: %q is not a number", name, v)
			return nil
		}
		return &n
	}
	if r.Form.Get("tailLines") == "all" {
		r.Form.Del("tailLines")
	}
	o.TailLines, o.LimitBytes = number("tailLines"), number("limitBytes")
	o.Follow, o.Timestamp, previous = flag(r, "follow"), flag(r, "timestamps"), flag(r, "previous")
	if s := number("sinceSeconds"); s != nil {
		o.Since = time.Now().Add(-time.Duration(*s) * time.Second)
	}
	if v := r.Form.Get("sinceTime"); v != "" && err == nil {
		if o.Since, err = time.Parse(time.RFC3339, v); err != nil {
			err = fmt.Errorf("sinceTime: %w", err)
		}
	}
	return o, previous, err
}

func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	opts, previous, err := logOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	v, ok := s.find(w, r)
	if !ok {
		return
	}
	name := r.PathValue("container")
	if spec.FindContainer(v.Pod, name) == nil {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", name, v.Pod.Name), http.StatusNotFound)
		return
	}
	c, err := logged(v, name, previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	path := c.LogPath
	if path == "" {
		path = filepath.Join(spec.LogDir(s.LogsDir, v.Pod), spec.LogPath(name, c.Attempt()))
	}
	out := &flusher{w: w}
	var stdout, stderr io.Writer = out, out
	switch r.Form.Get("stream") {
	case corev1.LogStreamStdout:
		stderr = nil
	case corev1.LogStreamStderr:
		stdout = nil
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Transfer-Encoding", "chunked")
	out.Flush()
	if c.Exited() {
		logs.Complete(r.Context(), path)
	}
	if err := crilogs.ReadLogs(r.Context(), path, c.Id, &opts, logs.Following{RuntimeService: s.Runtime, Path: path}, stdout, stderr); err != nil && r.Context().Err() == nil {
		if !out.written {
			fmt.Fprintf(w, "failed to try resolving symlinks or read the log of container %q: %v", name, err)
		}
		s.Log.Debug("reading a container's log ended", "path", path, "error", err)
	}
}

// logged picks the container whose log is requested. A container name stands for its newest
// attempt, or with previous for the attempt before it.
func logged(v worker.View, name string, previous bool) (*pleg.Container, error) {
	var attempts []*pleg.Container
	for _, c := range v.Containers {
		if c.Name() == name && (c.Running() || c.Exited()) {
			attempts = append(attempts, c)
		}
	}
	sort.Slice(attempts, func(i, j int) bool { return attempts[i].Attempt() > attempts[j].Attempt() })
	if previous {
		for i, c := range attempts {
			st := statusOf(v, name)
			// Take the container before the one that the status shows as current.
			if i > 0 || st != nil && st.State.Waiting != nil {
				if c.Exited() {
					return c, nil
				}
			}
		}
		return nil, fmt.Errorf("previous terminated container %q in pod %q not found", name, v.Pod.Name)
	}
	if len(attempts) > 0 {
		return attempts[0], nil
	}
	if st := statusOf(v, name); st != nil && st.State.Waiting != nil {
		if reason := st.State.Waiting.Reason; reason == "ErrImagePull" || reason == "ImagePullBackOff" || reason == "InvalidImageName" {
			return nil, fmt.Errorf("container %q in pod %q is waiting to start: trying and failing to pull image", name, v.Pod.Name)
		} else {
			return nil, fmt.Errorf("container %q in pod %q is waiting to start: %v", name, v.Pod.Name, reason)
		}
	}
	return nil, fmt.Errorf("container %q in pod %q is not available", name, v.Pod.Name)
}

func statusOf(v worker.View, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{v.Status.ContainerStatuses, v.Status.InitContainerStatuses, v.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// flusher flushes after each write, so that lines arrive at once.
type flusher struct {
	w       http.ResponseWriter
	written bool
}

func (f *flusher) Write(p []byte) (int, error) {
	f.written = true
	n, err := f.w.Write(p)
	f.Flush()
	return n, err
}

func (f *flusher) Flush() {
	if fl, ok := f.w.(http.Flusher); ok {
		fl.Flush()
	}
}
