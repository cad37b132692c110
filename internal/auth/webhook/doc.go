// Package webhook authenticates and authorizes by other servers (TokenReview, SubjectAccessReview),
// and reads the AuthorizationConfiguration, which puts authorizers in order.
//
// Answers are remembered for the configured time; errors are not. A server that does not answer is
// retried a few times, then the failure policy decides. Match conditions (CEL) keep requests from a
// webhook that it does not decide about.
package webhook
