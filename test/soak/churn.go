package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/hollow"
)

const space = "default"

// churn is the load: ten times what a busy small cluster does.
type churn struct {
	set     *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
	done    sync.Map // count of successful actions by name, *atomic.Int64
	failed  atomic.Int64
}

// actions are done at intervals, each in its own goroutine. n counts the calls.
func (c *churn) actions() map[string]struct {
	every time.Duration
	do    func(ctx context.Context, n int) error
} {
	type action = struct {
		every time.Duration
		do    func(ctx context.Context, n int) error
	}
	return map[string]action{
		"ConfigMap written": {50 * time.Millisecond, c.configMap}, "Lease renewed": {50 * time.Millisecond, c.lease}, "Event": {200 * time.Millisecond, c.event},
		"Deployment rolled": {3 * time.Second, c.deployment}, "watch": {500 * time.Millisecond, c.watch}, "definition": {10 * time.Second, c.definition},
	}
}

func (c *churn) run(ctx context.Context) {
	var group sync.WaitGroup
	for name, a := range c.actions() {
		group.Go(func() {
			count := &atomic.Int64{}
			c.done.Store(name, count)
			ticker := time.NewTicker(a.every)
			defer ticker.Stop()
			for n := 0; ; n++ {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
				limited, stop := context.WithTimeout(ctx, 20*time.Second)
				if err := a.do(limited, n); err == nil {
					count.Add(1)
				} else if ctx.Err() == nil {
					c.failed.Add(1) // a killed server takes some requests with it
				}
				stop()
			}
		})
	}
	group.Wait()
}

// String lists the counts.
func (c *churn) String() string {
	text := ""
	c.done.Range(func(name, count any) bool {
		text += fmt.Sprintf(" %d × %s,", count.(*atomic.Int64).Load(), name)
		return true
	})
	return fmt.Sprintf("%s %d failed", text, c.failed.Load())
}

// configMap creates one, changes it at the next call and deletes it at the third.
func (c *churn) configMap(ctx context.Context, n int) error {
	api, name := c.set.CoreV1().ConfigMaps(space), fmt.Sprintf("soak-%d", n/3)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": fmt.Sprintf("%01024d", n)}}
	var err error
	switch n % 3 {
	case 0:
		_, err = api.Create(ctx, object, metav1.CreateOptions{})
	case 1:
		_, err = api.Update(ctx, object, metav1.UpdateOptions{})
	default:
		err = api.Delete(ctx, name, metav1.DeleteOptions{})
	}
	return err
}

func (c *churn) lease(ctx context.Context, n int) error {
	api, name, now := c.set.CoordinationV1().Leases(space), fmt.Sprintf("soak-%d", n%50), metav1.NowMicro()
	lease, err := api.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		_, err = api.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &now}}, metav1.CreateOptions{})
		return err
	}
	lease.Spec.RenewTime = &now
	_, err = api.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

func (c *churn) event(ctx context.Context, n int) error {
	_, err := c.set.CoreV1().Events(space).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "soak-"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: space, Name: fmt.Sprint("p", n)},
		Reason: "Soak", Message: fmt.Sprint("event ", n), Type: "Normal", LastTimestamp: metav1.Now(),
	}, metav1.CreateOptions{})
	return err
}

// deployment makes one of five Deployments, or gives it another template.
func (c *churn) deployment(ctx context.Context, n int) error {
	api, name, replicas := c.set.AppsV1().Deployments(space), fmt.Sprintf("soak-%d", n%5), int32(10)
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"soak": fmt.Sprint(n)}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "soak"}}}}}}
	if _, err := api.Update(ctx, d, metav1.UpdateOptions{}); err == nil {
		return nil
	}
	_, err := api.Create(ctx, d, metav1.CreateOptions{})
	return err
}

// watch opens a watch and closes it after some events.
func (c *churn) watch(ctx context.Context, _ int) error {
	w, err := c.set.CoreV1().Pods(space).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	for range 1 + rand.IntN(20) {
		select {
		case <-w.ResultChan():
		case <-time.After(time.Second):
		}
	}
	return nil
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definition makes a CustomResourceDefinition and deletes that of the call before.
func (c *churn) definition(ctx context.Context, n int) error {
	plural := func(n int) string { return fmt.Sprintf("soaks%d", n) }
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural(n) + ".example.com"},
		"spec": map[string]any{"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": plural(n), "kind": fmt.Sprintf("Soak%d", n)},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}},
	}}
	_, err := c.dynamic.Resource(definitions).Create(ctx, object, metav1.CreateOptions{})
	if n > 0 {
		_ = c.dynamic.Resource(definitions).Delete(ctx, plural(n-1)+".example.com", metav1.DeleteOptions{})
	}
	return err
}

// nodes runs hollow nodes, which report pods as running, until ctx ends.
func nodes(ctx context.Context, config *rest.Config, n int, log *slog.Logger) error {
	api, err := client.Remote(config)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	for i := range n {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("hollow-%d", i)}}
		group.Go(func() {
			if err := hollow.Run(ctx, hollow.Config{Node: node, Client: api, Address: fmt.Sprintf("198.18.0.%d", i+1), Log: log}); err != nil && ctx.Err() == nil {
				log.Error("a hollow node ended", "node", node.Name, "error", err)
			}
		})
	}
	group.Wait()
	return nil
}
