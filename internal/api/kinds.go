package api

import "slices"

// kinds is the table, one row per kind: the groups in the order in which discovery lists them, which decides what
// a short name means to kubectl when groups share it.
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
