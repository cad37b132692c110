// Package node keeps the Node object and its lease. It measures the machine's capacity, asks the
// runtime for its health, and writes both to the API together with heartbeats.
package node
