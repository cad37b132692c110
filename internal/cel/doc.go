// Package cel compiles and evaluates the CEL expressions of admission: match conditions of webhooks, validations,
// mutations, variables and messages of policies. It owns which variables an expression sees, what it may return, and
// what it may cost.
//
// Words: a Scope is the set of variables there are; a Compiler makes Programs of one scope and knows its composite variables
// (variables.NAME), which are evaluated at most once per Evaluation and only if something reads them; an Evaluation
// holds the values of one write, and the cost that is left.
//
// The language and its libraries are those of k8s.io/apiserver/pkg/cel; KEP-3488 and KEP-3962 describe the variables. The
// package is pure: it is used to validate objects, too.
package cel
