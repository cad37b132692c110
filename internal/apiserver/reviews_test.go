package apiserver

import (
	"testing"
)

func TestRulesReviewDoesNotRepeatTheRequest(t *testing.T) {
	s := newTestServer(t)
	s.Use(Security{Authorizer: allowAll{}, Rules: allRules{}})
	one := answerCase{"a review with a name", "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"metadata":{"name":"x"},"spec":{"namespace":"default"}}`, nil, 201,
		`"metadata":{},"spec":{},"status":{"resourceRules":[{"verbs":["*"],`, "managedFields", ""}
	one.check(t, s)
}
