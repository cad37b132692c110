package cel

import (
	apiservercel "k8s.io/apiserver/pkg/cel"
)

type fields map[string]*apiservercel.DeclType

func object(name string, of fields) *apiservercel.DeclType {
	declared := make(map[string]*apiservercel.DeclField, len(of))
	for field, t := range of {
		declared[field] = apiservercel.NewDeclField(field, t, true, nil, nil)
	}
	return apiservercel.NewObjectType(name, declared)
}

func listOf(t *apiservercel.DeclType) *apiservercel.DeclType { return apiservercel.NewListType(t, -1) }

func mapOf(t *apiservercel.DeclType) *apiservercel.DeclType {
	return apiservercel.NewMapType(apiservercel.StringType, t, -1)
}

// requestType is AdmissionRequest of admission.k8s.io without the objects, which have variables of
// their own.
func requestType() *apiservercel.DeclType {
	text := apiservercel.StringType
	kind := object("kubernetes.GroupVersionKind", fields{"group": text, "version": text, "kind": text})
	resource := object("kubernetes.GroupVersionResource", fields{"group": text, "version": text, "resource": text})
	user := object("kubernetes.UserInfo", fields{"username": text, "uid": text, "groups": listOf(text), "extra": mapOf(listOf(text))})
	return object("kubernetes.AdmissionRequest", fields{
		"kind": kind, "resource": resource, "subResource": text, "requestKind": kind, "requestResource": resource, "requestSubResource": text,
		"name": text, "namespace": text, "operation": text, "userInfo": user, "dryRun": apiservercel.BoolType, "options": apiservercel.DynType,
	})
}

// namespaceType has the fields of a namespace that policies can read (API reference,
// ValidatingAdmissionPolicy: namespaceObject).
func namespaceType() *apiservercel.DeclType {
	text, at, number := apiservercel.StringType, apiservercel.TimestampType, apiservercel.IntType
	return object("kubernetes.Namespace", fields{
		"metadata": object("kubernetes.NamespaceMetadata", fields{
			"name": text, "generateName": text, "namespace": text, "labels": mapOf(text), "annotations": mapOf(text), "UID": text,
			"creationTimestamp": at, "deletionGracePeriodSeconds": number, "deletionTimestamp": at, "generation": number, "resourceVersion": text,
			"finalizers": listOf(text),
		}),
		"spec":   object("kubernetes.NamespaceSpec", fields{"finalizers": listOf(text)}),
		"status": object("kubernetes.NamespaceStatus", fields{"phase": text}),
	})
}
