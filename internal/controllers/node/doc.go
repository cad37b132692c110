// Package node holds the controllers that look after nodes: which part of the pod range each gets, whether it still lives
// and what that means for its pods, and the pods that are left over when it is gone.
package node
