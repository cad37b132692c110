package network

import (
	"encoding/json"
	"path/filepath"
	"testing"
)

// FuzzRequest parses requests as a broken plugin would send them.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"command":"ADD","containerID":"a","netns":"/n","ifName":"eth0","args":"K8S_POD_NAME=p;K8S_POD_NAMESPACE=n;=;x","config":{"cniVersion":"1.0.0","runtimeConfig":{"portMappings":[{"hostPort":80,"containerPort":8080,"protocol":"TCP","hostIP":"::1"}]}}}`))
	f.Add([]byte(`{"containerID":"../../etc/x","ifName":"../y","config":{"cni.dev/valid-attachments":[{}]}}`))
	f.Add([]byte(`{"config":null}`))
	files := attachmentFiles{"/attachments"}
	f.Fuzz(func(t *testing.T, content []byte) {
		var req cniRequest
		if json.Unmarshal(content, &req) != nil {
			return
		}
		req.podArgs()
		if path := files.path(attachmentKey(req.ContainerID, req.IfName)); filepath.Dir(path) != files.dir {
			t.Errorf("the file of container %q is %s", req.ContainerID, path)
		}
		if cfg, err := req.config(); err == nil {
			mappings, err := validMappings(cfg.RuntimeConfig.PortMappings)
			if err == nil {
				(&attachment{PortMappings: mappings}).targets()
			}
		}
	})
}
