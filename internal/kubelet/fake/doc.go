// Package fake provides an in-memory API and container runtime for the node agent's tests; test/e2e
// uses the real ones.
//
// The fakes have the properties that the node agent relies on. The API has resource versions,
// graceful deletion and read-your-writes views. In the runtime, container states only advance,
// changes send events, and a stop takes the grace period if the container ignores its signal.
package fake
