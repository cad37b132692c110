// Package policy carries out admission policies written in CEL: the plugins ValidatingAdmissionPolicy and
// MutatingAdmissionPolicy.
//
// A policy says what is checked or changed, its bindings say where, and with which parameters: objects of any kind. The
// policies are those that Views show when a write arrives, so a policy holds for the first write after the one that made
// it. Its expressions are compiled when the first write reaches them; a policy that nothing matches costs a comparison of
// rules. Kinds of parameters are watched as long as a policy names them.
//
// Semantics: API reference of admissionregistration.k8s.io, KEP-3488 (validating), KEP-3962 (mutating).
package policy
