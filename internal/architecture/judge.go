package architecture

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Observation is what the cluster shows of a component.
type Observation struct {
	// Workloads make the selected pods.
	Workloads []Workload
	Ready     int32
	Desired   int32
	// ReadyOf has the number of ready pods of each required component.
	ReadyOf map[ComponentReference]int32
	// MissingServices are the Services of offers that do not exist.
	MissingServices []string
	// Excess are the sentences of ExcessiveAccess.
	Excess []string
	// Watched means that nodes report traffic. Undeclared describes each connection that no
	// declaration allows.
	Watched    bool
	Undeclared []string
	// Policies are the NetworkPolicies that exist, Hosts those servers that no policy can express,
	// and Problem says why a policy does not exist.
	Policies []string
	Hosts    []string
	Problem  string
}

// Judgement is a condition without its times.
type Judgement struct {
	Type, Reason, Message string
	Status                metav1.ConditionStatus
}

// Limits of statuses.
const (
	// maxSentences is the number of faults that a message names.
	maxSentences = 10
	// MaxWorkloads bounds the list in a component's status, MaxMembers the one in a System's.
	MaxWorkloads = 20
	MaxMembers   = 500
)

// fine is the reason of conditions that are True.
const fine = "AsDeclared"

// judged returns a condition that is False if there are faults.
func judged(condition, reason string, faults []string, well string) Judgement {
	if len(faults) == 0 {
		return Judgement{condition, fine, well, metav1.ConditionTrue}
	}
	return Judgement{condition, reason, sentences(faults), metav1.ConditionFalse}
}

// sentences joins faults, the first ten of them.
func sentences(faults []string) string {
	text := strings.Join(faults[:min(len(faults), maxSentences)], ". ") + "."
	if more := len(faults) - maxSentences; more > 0 {
		text += fmt.Sprintf(" There are %d more.", more)
	}
	return text
}

// Judge returns the conditions of a component, in the order of the table in the documentation.
func (m *Model) Judge(ref ComponentReference, o Observation) []Judgement {
	c := m.components[ref]
	faults := m.Faults(ref)
	of := func(condition, well string) Judgement {
		var messages []string
		reason := ""
		for _, f := range faults {
			if f.Condition == condition {
				messages = append(messages, f.Field+": "+f.Message)
				if reason == "" {
					reason = f.Reason
				}
			}
		}
		return judged(condition, reason, messages, well)
	}
	all := []Judgement{
		m.requirements(ref, o, of(RequirementsMet, "All required components and offers exist and have ready pods.")),
		of(Acyclic, "No circle of requirements contains the component."),
		of(LayersRespected, "All required components are in the same layer or in lower ones."),
		of(DependenciesAllowed, "No system forbids a requirement."),
		m.traffic(ref, o),
		judged(AccessMinimal, "AccessUndeclared", o.Excess, "The service accounts may do no more than is declared."),
		levels(c.Spec.Levels, o),
		m.policies(ref, o),
	}
	return append([]Judgement{summary(all)}, all...)
}

// summary is the condition Conforms.
func summary(all []Judgement) Judgement {
	var failed []string
	reason := ""
	for _, v := range all {
		if v.Status == metav1.ConditionFalse {
			failed = append(failed, v.Type)
			if reason == "" {
				reason = v.Reason
			}
		}
	}
	if len(failed) == 0 {
		return Judgement{Conforms, fine, "The cluster is as declared.", metav1.ConditionTrue}
	}
	return Judgement{Conforms, reason, "False: " + strings.Join(failed, ", ") + ".", metav1.ConditionFalse}
}

// requirements adds required components without ready pods, and Services that do not exist, to the
// faults of the declaration.
func (m *Model) requirements(ref ComponentReference, o Observation, declared Judgement) Judgement {
	if declared.Status == metav1.ConditionFalse {
		return declared
	}
	var faults []string
	reason := "NotReady"
	for i, r := range m.components[ref].Spec.Requires {
		to := m.target(ref, i)
		if to == ref || r.Optional {
			continue
		}
		text := fmt.Sprintf("component %s has no ready pod", to)
		if o.ReadyOf[to] == 0 && !slices.Contains(faults, text) {
			faults = append(faults, text)
		}
	}
	if len(faults) == 0 {
		reason = "ServiceMissing"
		for _, s := range o.MissingServices {
			faults = append(faults, "Service "+s+" of an offer does not exist")
		}
	}
	if len(faults) == 0 {
		return declared
	}
	return judged(RequirementsMet, reason, faults, "")
}

func (m *Model) traffic(ref ComponentReference, o Observation) Judgement {
	switch {
	case m.Network(ref) == NetworkNone:
		return Judgement{TrafficDeclared, "NotWatched", "No system of the component wants its network watched (spec.network).", metav1.ConditionUnknown}
	case !o.Watched && len(o.Undeclared) == 0:
		return Judgement{TrafficDeclared, "NoCounters", "No node has reported traffic.", metav1.ConditionUnknown}
	}
	return judged(TrafficDeclared, "UndeclaredTraffic", o.Undeclared, "Requirements declare all connections that nodes have seen.")
}

func levels(l *Levels, o Observation) Judgement {
	if l == nil || l.Availability == 0 && l.MinReady == 0 {
		return Judgement{LevelsKept, "NoneToCheck", "The component promises no level that the cluster can check.", metav1.ConditionUnknown}
	}
	var faults []string
	if int64(o.Ready)*100 < int64(l.Availability)*int64(max(o.Desired, 1)) {
		faults = append(faults, fmt.Sprintf("%d of %d pods are ready; spec.levels.availability is %d percent", o.Ready, o.Desired, l.Availability))
	}
	if o.Ready < l.MinReady {
		faults = append(faults, fmt.Sprintf("%d pods are ready; spec.levels.minReady is %d", o.Ready, l.MinReady))
	}
	return judged(LevelsKept, "TooFewReady", faults, fmt.Sprintf("%d of %d pods are ready.", o.Ready, o.Desired))
}

func (m *Model) policies(ref ComponentReference, o Observation) Judgement {
	switch {
	case o.Problem != "":
		return Judgement{PoliciesApplied, "NotApplied", o.Problem, metav1.ConditionFalse}
	case m.Network(ref) != NetworkEnforce:
		return Judgement{PoliciesApplied, "NotEnforced", "No system of the component wants policies (spec.network: Enforce).", metav1.ConditionUnknown}
	case len(o.Hosts) > 0:
		return Judgement{PoliciesApplied, "HostsNotEnforced", "NetworkPolicies cannot express the hosts " + strings.Join(o.Hosts, ", ") +
			". Their ports are allowed to all addresses beyond the cluster. Use spec.requiresOutside.cidr to enforce them.", metav1.ConditionUnknown}
	}
	return Judgement{PoliciesApplied, fine, "NetworkPolicies allow the declared connections, and no others.", metav1.ConditionTrue}
}

// JudgeSystem returns the conditions of a System from those of its components, and the number of
// components that conform.
func (m *Model) JudgeSystem(name string, of func(ComponentReference) []metav1.Condition) (all []Judgement, conforming int32) {
	var own []string
	reason := ""
	for _, f := range m.SystemFaults(name) {
		own = append(own, f.Field+": "+f.Message)
		if reason == "" {
			reason = f.Reason
		}
	}
	all = []Judgement{judged(MembersFound, reason, own, "All named components, systems and layers exist.")}
	faults := map[string][]string{}
	known := map[string]bool{}
	for _, ref := range m.Members(name) {
		failed := false
		for _, c := range of(ref) {
			if c.Status != metav1.ConditionUnknown {
				known[c.Type] = true
			}
			if c.Status != metav1.ConditionFalse {
				continue
			}
			if c.Type == Conforms {
				failed = true
				continue
			}
			faults[c.Type] = append(faults[c.Type], ref.String()+": "+strings.TrimSuffix(c.Message, "."))
		}
		if !failed {
			conforming++
		} else {
			faults[ComponentsConform] = append(faults[ComponentsConform], ref.String())
		}
	}
	broken := "Component " + strings.Join(faults[ComponentsConform][:min(len(faults[ComponentsConform]), maxSentences)], ", ")
	if n := len(faults[ComponentsConform]); n > 0 {
		all = append(all, Judgement{ComponentsConform, "ComponentsFail", fmt.Sprintf("%s: %d of %d do not conform.", broken, n, len(m.members[name])), metav1.ConditionFalse})
	} else {
		all = append(all, Judgement{ComponentsConform, fine, "All components conform.", metav1.ConditionTrue})
	}
	for _, condition := range []string{RequirementsMet, Acyclic, LayersRespected, DependenciesAllowed, TrafficDeclared, PoliciesApplied} {
		if len(faults[condition]) == 0 && !known[condition] {
			all = append(all, Judgement{condition, "NothingKnown", "No component can be judged.", metav1.ConditionUnknown})
			continue
		}
		all = append(all, judged(condition, "ComponentsFail", faults[condition], "No component fails."))
	}
	return append([]Judgement{summary(all)}, all...), conforming
}
