// Package fake provides an in-memory container runtime for the node agent's tests; test/e2e uses a
// real one. The API beside it is client/clienttest.
//
// The fake has the properties that the node agent relies on: container states only advance, changes
// send events, and a stop takes the grace period if the container ignores its signal.
package fake
