// Package cel compiles and evaluates the CEL expressions of admission: match conditions of
// webhooks, and validations, mutations, variables and messages of policies. It owns the variables
// of an expression, its result types and its cost limits.
//
// Words. A Scope selects the variables. A Compiler makes Programs of one scope and knows its
// composite variables (variables.NAME). These are evaluated at most once per Evaluation, and only
// when they are read. An Evaluation holds the values of one write and the cost that is left.
//
// In: expressions, and the values of a write. Out: programs, results, errors. The package is pure,
// so validation of objects uses it too. The language and its libraries are those of
// k8s.io/apiserver/pkg/cel; KEP-3488 and KEP-3962 describe the variables.
package cel
