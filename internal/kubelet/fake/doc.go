// Package fake has an API and a container runtime in memory, for the node agent's own tests. The real ones are exercised in
// test/e2e. The fakes keep what the node agent relies on: resource versions, graceful deletion, read-your-writes views; container
// states that only advance, events, stops that take the grace period when a container ignores its signal.
package fake
