// Package lead elects one of several processes as leader, by keys of the store (ADR 0070).
//
// Words. A candidate takes part in an election. A term is one leader's time; terms follow each
// other and never overlap in the store. The holder key shows a living leader: it hangs on a lease
// that the leader keeps alive, and other candidates wait for its deletion. The term key names the
// leader of the newest term; its revision is the fence of that leader's writes.
//
// In: a store with leases and watches. Out: calls of a function, each with a Term.
package lead
