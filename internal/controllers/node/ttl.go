package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// TTL annotates nodes with the number of seconds for which kubelets may cache Secrets and
// ConfigMaps. The number grows with the number of nodes.
var TTL = controller.Starter{Name: "ttl-controller", Run: runTTL}

// ttls maps the largest number of nodes to the seconds.
var ttls = []struct {
	nodes   int64
	seconds int
}{{100, 0}, {500, 15}, {1000, 30}, {2000, 60}}

const longestTTL = 300

func runTTL(ctx context.Context, env controller.Env) error {
	nodes, err := client.Open[*corev1.Node](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open nodes: %w", err)
	}
	var count atomic.Int64 // complete before the first key is reconciled
	ttl := func() string {
		for _, t := range ttls {
			if count.Load() <= t.nodes {
				return strconv.Itoa(t.seconds)
			}
		}
		return strconv.Itoa(longestTTL)
	}
	latest := "" // the TTL after the last change of the number of nodes
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "ttl-controller",
		Inputs: []controller.Input{controller.On(nodes, func(e client.TypedEvent[*corev1.Node]) []controller.Key {
			own := []controller.Key{{Name: e.Object.Name}}
			switch e.Type {
			case client.Modified:
				if _, ok := e.Object.Annotations[corev1.ObjectTTLAnnotationKey]; ok {
					return nil
				}
				return own
			case client.Added:
				count.Add(1)
			case client.Deleted:
				count.Add(-1)
			}
			want := ttl()
			if want == latest {
				return own
			}
			latest = want
			var keys []controller.Key
			for _, n := range nodes.List("", nil) {
				if n.Annotations[corev1.ObjectTTLAnnotationKey] != want {
					keys = append(keys, controller.Key{Name: n.Name})
				}
			}
			return keys
		})},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			n, ok := nodes.Get("", key.Name)
			want := ttl()
			if !ok || n.Annotations[corev1.ObjectTTLAnnotationKey] == want {
				return controller.Result{}, nil
			}
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": n.UID, "annotations": map[string]string{corev1.ObjectTTLAnnotationKey: want}}})
			if err != nil {
				return controller.Result{}, err
			}
			_, err = client.Patch[*corev1.Node](ctx, env.Client, "", key.Name, types.StrategicMergePatchType, patch)
			return controller.Result{}, ignoreNotFound(err)
		},
	}
	return loop.Run(ctx)
}
