// Package flow prevents one client's flood from starving the others (API Priority and Fairness,
// KEP-1040).
//
// Words. A schema (FlowSchema) says which requests it matches, how to separate their flows, and to
// which level they belong. A level (PriorityLevelConfiguration) has seats. A request takes one seat
// while it is served, or more if it is expensive: its width. When a level's seats are taken,
// requests wait in queues. Each flow is dealt a hand of a few queues and uses the shortest of them:
// a flood fills some queues, while other flows find an empty one in theirs.
//
// A free seat goes to the queue that has had the least service (start-time fair queueing). Each
// queue has the virtual time at which its next request is due. That time grows by the seat-seconds
// that its requests are expected to take, and is corrected when they end.
//
// While a level has free seats, a request costs one lock, a few additions and no allocation. The
// core (level.go, limits.go, classify.go) knows neither clock nor goroutines. gate.go waits, and
// follows the objects. See docs/adr/0019-flow-control.md.
package flow
