// Package knarrtest runs a Kubernetes cluster inside a Go test: a real API server over HTTPS with
// its store, the controllers and the scheduler, all in the test's own process.
//
//	func TestMyOperator(t *testing.T) {
//		c := knarrtest.Start(t, knarrtest.WithNodes(2), knarrtest.WithCRDs("config/crd"))
//		client, err := kubernetes.NewForConfig(c.Config())
//		...
//	}
//
// [Start] returns when the cluster is usable. The cluster ends with the test, including its
// goroutines, its listener and its folder. Every cluster has its own store, port, keys and users,
// so tests can run in parallel. It needs no root, no download and no network but loopback. For one
// cluster per package, use [New] and [Cluster.Stop] in TestMain.
//
// # What is real
//
// The API server is knarr's: authentication, RBAC, admission with webhooks and policies,
// validation, custom resources, server-side apply, watches. So are the controllers and the
// scheduler.
//
// There are no containers. [WithNodes] adds hollow nodes, which simulate pods: the statuses are
// those that a kubelet would report. There is no process behind a pod, so logs, exec, port-forward,
// Services' addresses and volumes do not work.
//
// # Durability
//
// The store is in the test's temporary folder. Writes are not synced (no fsync): they survive the
// end of the process, but not a crash of the machine. [OnDisk] selects a folder that stays and
// syncs every write.
//
// # Time
//
// A [Clock] given by [WithClock] can be moved ahead. These parts follow it:
//   - timestamps that the API server sets, and the expiry of service account and bootstrap tokens;
//   - CronJobs, Jobs (activeDeadlineSeconds, backoff, ttlSecondsAfterFinished), Deployments
//     (progress deadline, minReadySeconds), ReplicaSets, StatefulSets and DaemonSets
//     (minReadySeconds), HorizontalPodAutoscalers, PodDisruptionBudgets, and the cleaners of tokens
//     and certificate signing requests;
//   - the retries of those controllers, and the [Fate] of pods on hollow nodes.
//
// These parts follow the machine's time: client certificates, heartbeats of nodes and evictions
// from lost nodes, the scheduler's back-off, the lifetime of Events, leader election.
//
// # When a test fails
//
// The test's log gets, as YAML of up to 256 KiB, the objects of all namespaces except those of the
// system, and all custom resources. If the environment variable KNARRTEST_DUMP names a folder, they
// go to a file there without that limit. Values of Secrets are left out.
package knarrtest
