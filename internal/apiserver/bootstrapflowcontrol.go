package apiserver

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// flowSchemaSpec is one of upstream's bootstrap FlowSchemas in short form.
type flowSchemaSpec struct {
	name, level string
	precedence  int32
	distinguish flowcontrolv1.FlowDistinguisherMethodType
	subjects    []flowcontrolv1.Subject
	rules       flowcontrolv1.PolicyRulesWithSubjects
}

// flowControlObjects returns upstream's bootstrap FlowSchemas and PriorityLevelConfigurations (API
// Priority and Fairness, KEP-1040).
func flowControlObjects() []runtime.Object {
	autoUpdate := map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}
	var objs []runtime.Object
	for _, level := range priorityLevels() {
		level.Annotations = autoUpdate
		objs = append(objs, level)
	}
	for _, s := range flowSchemas() {
		s.rules.Subjects = s.subjects
		schema := &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: s.name, Annotations: autoUpdate},
			Spec: flowcontrolv1.FlowSchemaSpec{
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: s.level},
				MatchingPrecedence:         s.precedence, Rules: []flowcontrolv1.PolicyRulesWithSubjects{s.rules},
			},
		}
		if s.distinguish != "" {
			schema.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: s.distinguish}
		}
		objs = append(objs, schema)
	}
	return objs
}

func priorityLevels() []*flowcontrolv1.PriorityLevelConfiguration {
	zero := int32(0)
	limited := func(name string, shares, lendable int32, queuing *flowcontrolv1.QueuingConfiguration) *flowcontrolv1.PriorityLevelConfiguration {
		response := flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}
		if queuing != nil {
			response = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: queuing}
		}
		return &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type:    flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares, LendablePercent: &lendable, LimitResponse: response},
		}}
	}
	queues := func(n, hand int32) *flowcontrolv1.QueuingConfiguration {
		return &flowcontrolv1.QueuingConfiguration{Queues: n, HandSize: hand, QueueLengthLimit: 50}
	}
	return []*flowcontrolv1.PriorityLevelConfiguration{
		{ObjectMeta: metav1.ObjectMeta{Name: "exempt"}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type:   flowcontrolv1.PriorityLevelEnablementExempt,
			Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: &zero, LendablePercent: &zero},
		}},
		limited("catch-all", 5, 0, nil),
		limited("system", 30, 33, queues(64, 6)),
		limited("node-high", 40, 25, queues(64, 6)),
		limited("leader-election", 10, 0, queues(16, 4)),
		limited("workload-high", 40, 50, queues(128, 6)),
		limited("workload-low", 100, 90, queues(128, 6)),
		limited("global-default", 20, 50, queues(128, 6)),
	}
}

func flowSchemas() []flowSchemaSpec {
	group := func(name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
	}
	user := func(name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}
	}
	systemAccounts := flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount,
		ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: "kube-system", Name: "*"}}
	all, any := []string{"*"}, flowcontrolv1.PolicyRulesWithSubjects{}
	any.ResourceRules = []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all}}
	any.NonResourceRules = []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}}
	leases := func(verbs ...string) flowcontrolv1.ResourcePolicyRule {
		return flowcontrolv1.ResourcePolicyRule{Verbs: verbs, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Namespaces: all}
	}
	everybody := []flowcontrolv1.Subject{group("system:unauthenticated"), group("system:authenticated")}
	byUser, byNamespace := flowcontrolv1.FlowDistinguisherMethodByUserType, flowcontrolv1.FlowDistinguisherMethodByNamespaceType
	return []flowSchemaSpec{
		{name: "exempt", level: "exempt", precedence: 1, subjects: []flowcontrolv1.Subject{group("system:masters")}, rules: any},
		{name: "probes", level: "exempt", precedence: 2, subjects: everybody, rules: flowcontrolv1.PolicyRulesWithSubjects{
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/readyz", "/livez"}}}}},
		{name: "system-leader-election", level: "leader-election", precedence: 100, distinguish: byUser,
			subjects: []flowcontrolv1.Subject{user("system:kube-controller-manager"), user("system:kube-scheduler"), systemAccounts},
			rules:    flowcontrolv1.PolicyRulesWithSubjects{ResourceRules: []flowcontrolv1.ResourcePolicyRule{leases("get", "create", "update")}}},
		{name: "system-node-high", level: "node-high", precedence: 400, distinguish: byUser, subjects: []flowcontrolv1.Subject{group("system:nodes")},
			rules: flowcontrolv1.PolicyRulesWithSubjects{ResourceRules: []flowcontrolv1.ResourcePolicyRule{
				{Verbs: all, APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, ClusterScope: true, Namespaces: all}, leases("*")}}},
		{name: "system-nodes", level: "system", precedence: 500, distinguish: byUser, subjects: []flowcontrolv1.Subject{group("system:nodes")}, rules: any},
		{name: "kube-controller-manager", level: "workload-high", precedence: 800, distinguish: byNamespace, subjects: []flowcontrolv1.Subject{user("system:kube-controller-manager")}, rules: any},
		{name: "kube-scheduler", level: "workload-high", precedence: 800, distinguish: byNamespace, subjects: []flowcontrolv1.Subject{user("system:kube-scheduler")}, rules: any},
		{name: "kube-system-service-accounts", level: "workload-high", precedence: 900, distinguish: byNamespace, subjects: []flowcontrolv1.Subject{systemAccounts}, rules: any},
		{name: "service-accounts", level: "workload-low", precedence: 9000, distinguish: byUser, subjects: []flowcontrolv1.Subject{group("system:serviceaccounts")}, rules: any},
		{name: "global-default", level: "global-default", precedence: 9900, distinguish: byUser, subjects: everybody, rules: any},
		{name: "catch-all", level: "catch-all", precedence: 10000, distinguish: byUser, subjects: everybody, rules: any},
	}
}
