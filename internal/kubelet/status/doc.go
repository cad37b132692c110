// Package status computes the status of pods from what the runtime has of them (pure), and writes
// it to the API. It writes at once, in the order in which pods changed, with one write at a time
// per pod.
package status
