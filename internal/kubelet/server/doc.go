// Package server is the node's HTTPS API on port 10250: logs, exec, attach, port-forward, pods,
// stats and metrics. Paths, parameters and answers are upstream's, so that any API server can use
// it.
//
// Every request is authenticated and authorized; see protect.
package server
