// Package status makes the status of pods out of what the runtime has of them (pure), and writes it to the API:
// at once, one write at a time per pod, in the order in which pods changed.
package status
