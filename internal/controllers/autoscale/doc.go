// Package autoscale is the control loop of HorizontalPodAutoscalers (API reference, autoscaling/v2;
// KEPs 853 and 4951). Every 15 seconds it reads the usage of a target's pods, and sets the target's
// scale to match the autoscaler's metrics.
//
// In: autoscalers and pods by Views, the scale subresource of the target, metrics from the
// extension servers of metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io. Out: the
// scale, and the autoscaler's status.
//
// A round has three steps, and the last two are pure. It reads the metrics (metrics.go), computes
// how many pods they demand (demand.go), and decides how much of the change is allowed now
// (behavior.go).
package autoscale
