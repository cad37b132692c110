// Package controllers lists all controllers of the cluster. Each is one file and one test in the
// package of its area. The areas do not import each other, and meet only in the API (ADR 0008).
package controllers

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controllers/accounts"
	"github.com/knarr-project/knarr/internal/controllers/architecture"
	"github.com/knarr-project/knarr/internal/controllers/autoscale"
	"github.com/knarr-project/knarr/internal/controllers/certificates"
	"github.com/knarr-project/knarr/internal/controllers/daemonset"
	"github.com/knarr-project/knarr/internal/controllers/deployment"
	"github.com/knarr-project/knarr/internal/controllers/endpoint"
	"github.com/knarr-project/knarr/internal/controllers/gc"
	"github.com/knarr-project/knarr/internal/controllers/job"
	"github.com/knarr-project/knarr/internal/controllers/namespace"
	"github.com/knarr-project/knarr/internal/controllers/network"
	"github.com/knarr-project/knarr/internal/controllers/node"
	"github.com/knarr-project/knarr/internal/controllers/policy"
	"github.com/knarr-project/knarr/internal/controllers/rbac"
	"github.com/knarr-project/knarr/internal/controllers/replicaset"
	"github.com/knarr-project/knarr/internal/controllers/resourceclaim"
	"github.com/knarr-project/knarr/internal/controllers/schedulerplugins"
	"github.com/knarr-project/knarr/internal/controllers/scheduling"
	"github.com/knarr-project/knarr/internal/controllers/statefulset"
	"github.com/knarr-project/knarr/internal/controllers/volume"
	"github.com/knarr-project/knarr/internal/loadbalancer"
	"github.com/knarr-project/knarr/internal/network/peers"
)

// All returns the one list of controllers in the order of their start: what others depend on comes
// first.
func All(m *Metrics) []controller.Starter {
	return []controller.Starter{
		accounts.ServiceAccount,
		accounts.RootCA,
		accounts.Tokens,
		namespace.Namespace,
		gc.Controller,
		node.IPAM,
		node.Lifecycle(m.nodes),
		node.TaintEviction(m.nodes),
		node.PodGC,
		node.TTL,
		node.Account,
		replicaset.ReplicaSet,
		replicaset.ReplicationController,
		deployment.Deployment,
		daemonset.DaemonSet,
		statefulset.StatefulSet,
		job.Job,
		job.CronJob,
		job.TTLAfterFinished,
		autoscale.Horizontal,
		policy.ResourceQuota,
		policy.Disruption,
		policy.TypeChecking,
		volume.Binder,
		volume.Local,
		volume.ClaimProtection,
		volume.VolumeProtection,
		volume.ClassProtection,
		volume.AttachDetach,
		volume.Ephemeral,
		resourceclaim.Controller,
		scheduling.PodGroupProtection,
		rbac.Aggregation,
		certificates.Approving,
		certificates.Signing,
		certificates.Cleaner,
		accounts.BootstrapSigner,
		accounts.TokenCleaner,
		accounts.UnusedTokens,
		network.ServiceCIDR,
		loadbalancer.Controller,
		network.LoadBalancerHint,
		network.IngressHint,
		peers.Controller,
		architecture.Controller,
		architecture.Counting,
		schedulerplugins.Definition,
		endpoint.Slice,
		endpoint.Endpoints,
		endpoint.Mirror,
	}
}

// Names returns the names of all controllers.
func Names() []string {
	var names []string
	for _, starter := range All(NewMetrics()) {
		names = append(names, starter.Name)
	}
	return names
}

// Metrics are those of all controllers of one registry.
type Metrics struct {
	Queues *controller.QueueMetrics
	nodes  *node.Metrics
}

// NewMetrics returns metrics that count from zero.
func NewMetrics() *Metrics {
	return &Metrics{Queues: controller.NewQueueMetrics(), nodes: node.NewMetrics()}
}

// Collectors returns what a registry takes.
func (m *Metrics) Collectors() []prometheus.Collector {
	return slices.Concat(m.Queues.Collectors(), m.nodes.Collectors())
}
