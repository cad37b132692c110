// Package policy implements admission policies written in CEL: the plugins
// ValidatingAdmissionPolicy and MutatingAdmissionPolicy.
//
// A policy defines checks or mutations. A binding applies them to resources, with parameters:
// objects of any kind. Policies are read from views, so a policy applies to the first write after
// its own. Expressions are compiled when the first write reaches them; an unmatched policy costs
// only a comparison of rules. A kind of parameters is watched while a policy names it.
//
// The semantics are those of the API reference of admissionregistration.k8s.io, KEP-3488
// (validating) and KEP-3962 (mutating).
package policy
