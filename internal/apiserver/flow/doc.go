// Package flow keeps one client's flood from drowning the others (API Priority and Fairness, KEP-1040).
//
// Words. A schema (FlowSchema) says which requests it is for, what tells its flows apart, and which level they belong to. A level
// (PriorityLevelConfiguration) has seats; a request takes one or, where it is dear, more of them while it is served, its width. When a
// level's seats are taken, requests wait in queues: each flow is dealt a hand of a few queues and uses the shortest of them, so that a
// flood fills some queues while other flows find an empty one in theirs.
//
// A free seat goes to the queue that has had least: each queue carries the virtual time at which its next request is due, which
// grows by the seat-seconds that its requests were expected to take and is corrected when they have ended (start-time fair queueing).
//
// As long as a level has free seats, a request costs one lock and a few additions, and nothing is allocated. The core (level.go,
// limits.go, classify.go) knows neither clock nor goroutines; gate.go waits, and follows the objects. See docs/adr/0019-flow-control.md.
package flow
