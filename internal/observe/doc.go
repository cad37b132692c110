// Package observe is the HTTPS server of a component that runs alone, on the port of its upstream
// counterpart. Everyone can read its health pages. Metrics and settings require authorization by
// the API server (package auth/delegated).
//
// In: checks, metrics and settings of the component. Out: /healthz, /livez, /readyz, /metrics,
// /metrics/slis, /configz, /flagz and /statusz, as in upstream's kube-controller-manager and
// kube-scheduler.
package observe
