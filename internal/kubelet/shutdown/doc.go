// Package shutdown ends pods in order before the machine goes down (KEP-2000), also by their
// priority (KEP-2712).
//
// In: the signal that the machine goes down, and the pods of the node. Out: pods that end one group
// after the other, each within the period of its group.
//
// Words. A group is the pods of a range of priorities. A lock is logind's delay inhibitor: while
// the node agent holds it, logind waits with the shutdown.
//
// Two things signal a shutdown. logind does on the system's D-Bus, where it is there. Otherwise the
// end of the node agent does, if Halting reports that the machine goes down with it. A plain stop
// or restart of the node agent never ends pods. See docs/adr/0066-shutdown-of-a-node.md.
package shutdown
