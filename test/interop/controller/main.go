// Controller is a typical controller of controller-runtime: a manager with leader election, a cache
// with an index, one reconciler. It runs in a pod with the rights of its service account.
//
// A ConfigMap labelled "fleet" requests ships: its data hold their number and image. Each fleet has
// a Deployment that it owns. The pods wait for a readiness gate that the controller opens. The
// controller reports its work in Events and in an annotation, and uses a finalizer to notice
// deletions.
package main

import (
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

func run() error {
	ctrl.SetLogger(zap.New())
	m, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		LeaderElection: true, LeaderElectionID: "harbour-master",
		// Short times, so that the second instance takes over soon in the test.
		LeaseDuration: ptr.To(3 * time.Second), RenewDeadline: ptr.To(2 * time.Second), RetryPeriod: ptr.To(500 * time.Millisecond),
		Metrics: server.Options{BindAddress: ":8080"}, HealthProbeBindAddress: ":8081",
	})
	if err != nil {
		return err
	}
	if err := m.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	if err := m.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, gateIndex, gatesOf); err != nil {
		return err
	}
	isFleet, err := predicate.LabelSelectorPredicate(fleets)
	if err != nil {
		return err
	}
	r := &reconciler{Client: m.GetClient(), events: m.GetEventRecorder("harbour-master")}
	err = ctrl.NewControllerManagedBy(m).
		For(&corev1.ConfigMap{}, builder.WithPredicates(isFleet)).
		Owns(&appsv1.Deployment{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(fleetOf)).
		Complete(r)
	if err != nil {
		return err
	}
	return m.Start(ctx)
}
