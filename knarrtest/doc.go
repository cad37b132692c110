// Package knarrtest is a Kubernetes cluster inside a Go test: a real API server over HTTPS with its
// store, the controllers and the scheduler, in the test's own process.
//
//	func TestMyOperator(t *testing.T) {
//		c := knarrtest.Start(t, knarrtest.WithNodes(2), knarrtest.WithCRDs("config/crd"))
//		client, err := kubernetes.NewForConfig(c.Config())
//		...
//	}
//
// [Start] returns when the cluster is usable. The cluster ends with the test: its goroutines, its
// listener and its folder are gone then. Every cluster has a store, a port, keys and users of its
// own, so tests run in parallel. It needs no root, no download and no network but loopback. For one
// cluster of a whole package use [New] and [Cluster.Stop] in TestMain.
//
// # What is real
//
// The API server is knarr's: authentication, RBAC, admission with webhooks and policies,
// validation, custom resources, server-side apply, watches. So are the controllers and the
// scheduler. There are no containers. [WithNodes] adds nodes that run pods on paper: statuses go
// the way that a kubelet's would. No process runs behind them, so logs, exec, port-forward,
// Services' addresses and volumes do not work.
//
// # Durability
//
// The store is a folder in the test's temporary folder. Its writes are left to the kernel (no
// fsync): they survive the end of the process, not a crash of the machine. [OnDisk] names a folder
// that stays and syncs every write.
//
// # Time
//
// A [Clock] given by [WithClock] can be moved ahead. These follow it:
//
//   - timestamps that the API server sets, and the expiry of service account and bootstrap tokens;
//   - CronJobs, Jobs (activeDeadlineSeconds, backoff, ttlSecondsAfterFinished), Deployments
//     (progress deadline, minReadySeconds), ReplicaSets, StatefulSets and DaemonSets
//     (minReadySeconds), HorizontalPodAutoscalers, PodDisruptionBudgets, and the cleaners of tokens
//     and certificate signing requests;
//   - the retries of those controllers, and what a [Fate] says of pods on hollow nodes.
//
// These follow the machine's time: client certificates, heartbeats of nodes and evictions from
// nodes that are lost, the scheduler's back-off, the lifetime of Events, leader election.
//
// # When a test fails
//
// The objects of all namespaces but those that the system made, and of all custom resources, go to
// the test's log as YAML, up to 256 KiB. If the environment names a folder in KNARRTEST_DUMP, they
// go to a file there without that limit. Values of Secrets are left out.
package knarrtest
