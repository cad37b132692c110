package knarrtest_test

import (
	"context"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/knarrtest"
)

// A test calls Start(t), which also ends the cluster. An example has no t, so these call New and
// Stop.
func Example() {
	c, err := knarrtest.New()
	if err != nil {
		log.Fatal(err)
	}
	defer stop(c)
	ctx, client := context.Background(), connect(c.Config())
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"colour": "blue"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, settings, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	found, err := client.CoreV1().ConfigMaps("default").Get(ctx, "settings", metav1.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found.Data["colour"])
	// Output: blue
}

// Pods run on hollow nodes: scheduled, with an address, and ready.
func ExampleWithNodes() {
	c, err := knarrtest.New(knarrtest.WithNodes(2))
	if err != nil {
		log.Fatal(err)
	}
	defer stop(c)
	ctx, client := context.Background(), connect(c.Config())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}}}
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		pod, err := client.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
	fmt.Println("runs:", err == nil)
	// Output: runs: true
}

// RBAC decides what a user may do.
func ExampleCluster_As() {
	c, err := knarrtest.New()
	if err != nil {
		log.Fatal(err)
	}
	defer stop(c)
	jane := connect(c.As("jane", "developers"))
	_, err = jane.CoreV1().Secrets("default").List(context.Background(), metav1.ListOptions{})
	fmt.Println("forbidden:", apierrors.IsForbidden(err))
	// Output: forbidden: true
}

// A moved clock expires tokens, runs CronJobs and removes finished Jobs without waiting.
func ExampleWithClock() {
	var clock knarrtest.Clock
	c, err := knarrtest.New(knarrtest.WithClock(&clock))
	if err != nil {
		log.Fatal(err)
	}
	defer stop(c)
	ctx, client := context.Background(), connect(c.Config())
	clock.Advance(365 * 24 * time.Hour)
	made, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("made in a year:", time.Until(made.CreationTimestamp.Time) > 364*24*time.Hour)
	// Output: made in a year: true
}

func connect(config *rest.Config) kubernetes.Interface {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func stop(c *knarrtest.Cluster) {
	if err := c.Stop(); err != nil {
		log.Fatal(err)
	}
}
