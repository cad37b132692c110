// Package apiserver is the only way to the store. It serves the Kubernetes API over HTTP and,
// through the same pipeline by function call, to the components of this process.
//
// This package builds the server, runs it, and has the chain of stages that every HTTP request
// passes (chain.go). The work is done in the packages below it, each of which imports only those
// above it in this list:
//
//	wire         forms of requests and answers
//	telemetry    metrics
//	registry     kinds, endpoints, places
//	service      addresses and ports of Services
//	verb         operations
//	definitions  kinds of CustomResourceDefinitions
//	watch        watches
//	rest         HTTP requests for resources
//	node         connections to nodes, pods and Services
//	local        the API by function call
//
// Objects in memory are always in the kind's storage version, with an empty TypeMeta. The endpoint
// adds apiVersion and kind on the wire. See docs/adr/0001 and 0002.
package apiserver
