// Package autoscale is the HorizontalPodAutoscaler's control loop: every fifteen seconds it asks how much the pods of a target use, and
// sets the target's scale so that it is what the autoscaler wants (API reference, autoscaling/v2; KEPs 853 and 4951).
//
// Data in: autoscalers and pods by Views, scales by the scale subresource of whatever the target is, metrics from the extension
// servers of metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io. Data out: the scale, and the autoscaler's status.
//
// A round has three steps, the last two pure: what the metrics say (metrics.go), how many pods that takes (demand.go), and how many of
// the change may happen now (behavior.go).
package autoscale
