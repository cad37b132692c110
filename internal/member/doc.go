// Package member is the API with which servers join a cluster and with which an administrator
// manages them: paths, requests, answers, and a client.
//
// Words. A member is a server that holds a copy of the embedded store. A voter is a member whose
// acknowledgement counts for a write; a learner only receives writes.
//
// In: requests from untrusted machines, whose form is checked here. Out: typed requests and
// answers. internal/controlplane serves them; internal/run joins with them (docs/adr/0069).
package member
