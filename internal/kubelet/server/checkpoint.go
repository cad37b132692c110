package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkpoint writes the state of a running container to a file (KEP-2008), and answers with the
// file's path. The runtime does the work, if it can.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) {
	v, ok := s.find(w, r)
	if !ok {
		return
	}
	name := r.PathValue("container")
	timeout := int64(0)
	if text := r.FormValue("timeout"); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			http.Error(w, fmt.Sprintf("timeout: %q is not usable: seconds, 0 or more", text), http.StatusBadRequest)
			return
		}
		timeout = n
	}
	var id string
	for _, c := range v.Containers {
		if c.Name() == name && c.Running() {
			id = c.Id
		}
	}
	if id == "" {
		http.Error(w, fmt.Sprintf("container %v does not exist", name), http.StatusNotFound)
		return
	}
	fail := func(err error) {
		code := http.StatusInternalServerError
		if status.Code(err) == codes.Unimplemented {
			code = http.StatusNotFound
		}
		http.Error(w, fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)", v.Pod.Namespace, v.Pod.Name, name, err), code)
	}
	// A checkpoint has the memory of the container.
	if err := os.MkdirAll(s.Checkpoints, 0o700); err != nil {
		fail(err)
		return
	}
	file := filepath.Join(s.Checkpoints, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", v.Pod.Name, v.Pod.Namespace, name, time.Now().Format(time.RFC3339)))
	if err := s.Runtime.CheckpointContainer(r.Context(), &runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: file, Timeout: timeout}); err != nil {
		fail(err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The client may have disconnected.
	_ = json.NewEncoder(w).Encode(map[string]any{"items": []string{file}})
}
