// Package node owns the node's own object and lease: what the machine has, how it is, that it is alive.
package node
