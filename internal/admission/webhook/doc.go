// Package webhook asks admission webhooks: the plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook.
//
// A hook is one webhook of a configuration, prepared: its rules, its compiled match conditions, and a client that keeps
// its connections. The hooks are those that a View shows when a write arrives, so a configuration holds for the first write
// after the one that made it; hooks that have not changed are kept with their connections. The objects that hooks see are
// encoded once for each form (version) that some hook wants.
//
// The protocol and the semantics are those of the API reference (admissionregistration.k8s.io, admission.k8s.io).
package webhook
