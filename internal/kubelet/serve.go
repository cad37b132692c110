package kubelet

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/server"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// serve opens the node's HTTPS API.
func (k *Kubelet) serve(ctx context.Context) (run func(context.Context), err error) {
	if k.Listen == "-" {
		return func(context.Context) {}, nil
	}
	run, _, err = server.Listen(ctx, server.Config{
		Listen: k.Listen, TLS: k.TLS, Authenticator: k.Authenticator, Authorizer: k.Authorizer, NodeName: k.NodeName, Runtime: k.Runtime,
		Images: k.Images, Pods: pods{k}, LogsDir: k.LogsDir, SystemLogs: "/var/log", Healthy: k.healthy, Log: k.log,
	})
	return run, err
}

func (k *Kubelet) healthy() error { return k.pleg.Healthy(k.Now()) }

// pods is what the node's API sees of the workers.
type pods struct{ k *Kubelet }

func (p pods) Find(namespace, name string, uid types.UID) (worker.View, bool) {
	var found worker.View
	ok := false
	for _, w := range p.k.Workers() {
		v := w.View()
		if v.Pod.Namespace != namespace || v.Pod.Name != name || uid != "" && v.Pod.UID != uid {
			continue
		}
		// Of an old pod that is still ending and its successor of the same name, the younger is meant.
		if !ok || found.Pod.CreationTimestamp.Before(&v.Pod.CreationTimestamp) {
			found, ok = v, true
		}
	}
	return found, ok
}

func (p pods) Views() []worker.View {
	var out []worker.View
	for _, w := range p.k.Workers() {
		out = append(out, w.View())
	}
	return out
}
