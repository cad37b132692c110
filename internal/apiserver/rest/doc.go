// Package rest serves HTTP requests for resources: it checks the path, negotiates the format,
// decodes the body, runs the operation (package verb) or the watch (package watch), and encodes
// the answer.
//
// A Call is one such request. Streams and proxies go to package node.
package rest
