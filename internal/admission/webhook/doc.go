// Package webhook calls admission webhooks: the plugins MutatingAdmissionWebhook and
// ValidatingAdmissionWebhook.
//
// Words. A hook is one prepared webhook of a configuration: its rules, its compiled match
// conditions, and a client that keeps its connections. A form is a version in which a hook sees an
// object.
//
// Configurations are read from a view, so a configuration applies to the first write after its own.
// Unchanged hooks keep their connections. Objects are encoded once per form that a hook requests.
//
// The protocol and the semantics are those of the API reference (admissionregistration.k8s.io,
// admission.k8s.io).
package webhook
