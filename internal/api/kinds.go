package api

import "slices"

// kinds is the table, one row per kind. Groups are in discovery order, which decides the meaning of
// a short name in kubectl if several groups have it.
var kinds = slices.Concat(
	coreKinds,
	apiregistrationKinds,
	appsKinds,
	eventsKinds,
	authenticationKinds,
	authorizationKinds,
	autoscalingKinds,
	batchKinds,
	certificatesKinds,
	networkingKinds,
	policyKinds,
	rbacKinds,
	storageKinds,
	admissionregistrationKinds,
	apiextensionsKinds,
	schedulingKinds,
	coordinationKinds,
	nodeKinds,
	discoveryKinds,
	resourceKinds,
	flowcontrolKinds,
	metricsKinds,
)

// Verbs that many subresources share.
var (
	updateVerbs = []string{"get", "patch", "update"}
	proxyVerbs  = []string{"create", "delete", "get", "patch", "update"}
)
