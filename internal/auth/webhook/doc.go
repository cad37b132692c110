// Package webhook asks other servers who somebody is (TokenReview) and what they may do (SubjectAccessReview), and reads the
// AuthorizationConfiguration that puts authorizers in order.
//
// Answers are remembered for as long as the configuration says; errors are not. A server that does not answer is asked a few times, then
// the failure policy decides. Match conditions (CEL) spare a webhook the requests that it has nothing to say about.
package webhook
