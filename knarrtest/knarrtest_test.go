package knarrtest_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/knarrtest"
)

func clientset(t testing.TB, c *knarrtest.Cluster) kubernetes.Interface {
	t.Helper()
	k, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// eventually repeats fn until it returns true. The limit of a minute only ends a hanging test.
func eventually(t testing.TB, what string, fn func() (bool, error)) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		ok, err := fn()
		if ok {
			return
		}
		if last = err; time.Now().After(deadline) {
			t.Fatalf("never: %s (%v)", what, last)
		}
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/app:1"}}}}
}

func TestAClusterServesItsAPI(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := knarrtest.Start(t)
	t.Logf("started in %s", time.Since(began))
	k := clientset(t, c)
	if _, err := k.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	v, err := k.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(v.GitVersion, "v1.36.") {
		t.Errorf("version %s", v.GitVersion)
	}
}

func TestADeploymentRunsOnHollowNodes(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t, knarrtest.WithNodes(3))
	k := clientset(t, c)
	replicas := int32(5)
	labels := map[string]string{"app": "web"}
	_, err := k.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("x").Spec},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "five replicas are available", func() (bool, error) {
		d, err := k.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == 5, err
	})
	pods, err := k.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	addresses := map[string]bool{}
	for _, p := range pods.Items {
		addresses[p.Status.PodIP] = true
		if p.Status.HostIP == "" || len(p.Status.ContainerStatuses) != 1 || !p.Status.ContainerStatuses[0].Ready {
			t.Errorf("pod %s: %+v", p.Name, p.Status)
		}
	}
	if len(addresses) != 5 || addresses[""] {
		t.Errorf("addresses %v", addresses)
	}
	if err := k.AppsV1().Deployments("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pods are gone", func() (bool, error) {
		pods, err := k.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0, err
	})
}

func TestAJobsTTLFollowsTheClock(t *testing.T) {
	t.Parallel()
	var clock knarrtest.Clock
	c := knarrtest.Start(t, knarrtest.WithNodes(1), knarrtest.WithCompletedJobs(10*time.Minute), knarrtest.WithClock(&clock))
	k := clientset(t, c)
	spec := pod("x").Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	ttl := int32(3600)
	_, err := k.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "once"},
		Spec: batchv1.JobSpec{TTLSecondsAfterFinished: &ttl, Template: corev1.PodTemplateSpec{Spec: spec}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	job := func() (*batchv1.Job, error) {
		return k.BatchV1().Jobs("default").Get(t.Context(), "once", metav1.GetOptions{})
	}
	eventually(t, "the job's pod runs", func() (bool, error) {
		j, err := job()
		return err == nil && j.Status.Ready != nil && *j.Status.Ready == 1, err
	})
	clock.Advance(11 * time.Minute)
	eventually(t, "the job is complete", func() (bool, error) {
		j, err := job()
		return err == nil && j.Status.Succeeded == 1 && j.Status.CompletionTime != nil, err
	})
	clock.Advance(2 * time.Hour)
	eventually(t, "the job is gone", func() (bool, error) {
		_, err := job()
		return apierrors.IsNotFound(err), err
	})
}

func TestACronJobRunsWhenTheClockIsMoved(t *testing.T) {
	t.Parallel()
	var clock knarrtest.Clock
	c := knarrtest.Start(t, knarrtest.WithNodes(1), knarrtest.WithClock(&clock))
	k := clientset(t, c)
	spec := pod("x").Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "daily"}, Spec: batchv1.CronJobSpec{Schedule: "0 3 * * *",
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}}}}
	if _, err := k.BatchV1().CronJobs("default").Create(t.Context(), cron, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clock.Advance(24 * time.Hour)
	eventually(t, "a job was made", func() (bool, error) {
		jobs, err := k.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(jobs.Items) == 1, err
	})
}

func TestAUserHasTheRightsOfRBAC(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t)
	user, err := kubernetes.NewForConfig(c.As("jane", "developers"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := user.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing pods: %v", err)
	}
}

func TestPodsStayPendingWithoutAScheduler(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t, knarrtest.WithNodes(1), knarrtest.WithoutScheduler(), knarrtest.WithoutControllers())
	k := clientset(t, c)
	placed := pod("placed")
	placed.Spec.NodeName = "node-0"
	placed.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for _, p := range []*corev1.Pod{pod("free"), placed} {
		if _, err := k.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the pod that names its node runs", func() (bool, error) {
		p, err := k.CoreV1().Pods("default").Get(t.Context(), "placed", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "", err
	})
	p, err := k.CoreV1().Pods("default").Get(t.Context(), "free", metav1.GetOptions{})
	if err != nil || p.Spec.NodeName != "" {
		t.Errorf("node %q, %v", p.Spec.NodeName, err)
	}
}

func TestAnUnknownControllerIsAnError(t *testing.T) {
	t.Parallel()
	_, err := knarrtest.New(knarrtest.WithControllers("deployment"))
	if err == nil || !strings.Contains(err.Error(), `"deployment"`) {
		t.Errorf("error %v", err)
	}
}

func TestAClusterOnDiskContinuesWhereItEnded(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for i := range 2 {
		c, err := knarrtest.New(knarrtest.OnDisk(folder), knarrtest.WithoutControllers(), knarrtest.WithoutScheduler())
		if err != nil {
			t.Fatal(err)
		}
		_, err = clientset(t, c).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
		if i == 0 && err != nil || i == 1 && !apierrors.IsAlreadyExists(err) {
			t.Errorf("start %d: %v", i, err)
		}
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTwentyClustersAtOnce finds state that clusters of one program must not share.
func TestTwentyClustersAtOnce(t *testing.T) {
	const n = 20
	clusters := make([]*knarrtest.Cluster, n)
	errs := make([]error, n)
	var starts sync.WaitGroup
	for i := range n {
		starts.Go(func() { clusters[i], errs[i] = knarrtest.New(knarrtest.WithNodes(1)) })
	}
	starts.Wait()
	t.Cleanup(func() {
		var ends sync.WaitGroup
		for _, c := range clusters {
			if c != nil {
				ends.Go(func() {
					if err := c.Stop(); err != nil {
						t.Error(err)
					}
				})
			}
		}
		ends.Wait()
	})
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	var uses sync.WaitGroup
	for i, c := range clusters {
		uses.Go(func() {
			k, err := kubernetes.NewForConfig(c.Config())
			if err == nil {
				_, err = k.CoreV1().Pods("default").Create(t.Context(), pod("same-name"), metav1.CreateOptions{})
			}
			if err != nil {
				t.Errorf("cluster %d: %v", i, err)
				return
			}
			err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
				p, err := k.CoreV1().Pods("default").Get(ctx, "same-name", metav1.GetOptions{})
				return err == nil && p.Status.Phase == corev1.PodRunning, err
			})
			if err != nil {
				t.Errorf("cluster %d: the pod does not run: %v", i, err)
			}
			pods, err := k.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(pods.Items) != 1 {
				t.Errorf("cluster %d: %d pods, %v", i, len(pods.Items), err)
			}
		})
	}
	uses.Wait()
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		c, err := knarrtest.New()
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Stop(); err != nil {
			b.Fatal(err)
		}
	}
}

func goroutines() string {
	buf := make([]byte, 4<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
