package architecture

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// System is a set of components and the boundary around them. It is cluster-scoped.
type System struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SystemSpec   `json:"spec"`
	Status SystemStatus `json:"status,omitempty"`
}

// SystemSpec is the declaration. A component belongs to the System if it is named in Components,
// belongs to a nested System, or is in one of Namespaces and matches ComponentSelector, where an
// absent one of the two matches everything unless both are absent.
type SystemSpec struct {
	Namespaces        []string              `json:"namespaces,omitempty"`
	ComponentSelector *metav1.LabelSelector `json:"componentSelector,omitempty"`
	Components        []ComponentReference  `json:"components,omitempty"`
	// Systems are the names of nested Systems.
	Systems []string `json:"systems,omitempty"`
	// Layers are ordered from the highest to the lowest one. A component may require components of
	// its own layer and of lower layers.
	Layers []string `json:"layers,omitempty"`
	// Forbidden are the dependencies that no component may have.
	Forbidden []ForbiddenDependency `json:"forbidden,omitempty"`
	// Network says whether NetworkPolicies are made from the requirements. The strictest of a
	// component's Systems counts.
	Network NetworkMode `json:"network,omitempty"`
	// Admission says how writes are answered that break the architecture. The strictest of a
	// component's Systems counts.
	Admission AdmissionMode `json:"admission,omitempty"`
	// Entrances are the components that components beyond the boundary may require. None means
	// that they may require all. Components with exposed offers are entrances.
	Entrances []ComponentReference `json:"entrances,omitempty"`
}

// ComponentReference names a Component.
type ComponentReference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (r ComponentReference) String() string { return r.Namespace + "/" + r.Name }

// ForbiddenDependency forbids requirements of From on To.
type ForbiddenDependency struct {
	From Side `json:"from"`
	To   Side `json:"to"`
	// Reason is shown to the author of a forbidden requirement.
	Reason string `json:"reason,omitempty"`
}

// Side is one end of a forbidden dependency. It names exactly one of a component
// ("namespace/name"), a layer of this System, or a System.
type Side struct {
	Component string `json:"component,omitempty"`
	Layer     string `json:"layer,omitempty"`
	System    string `json:"system,omitempty"`
}

// NetworkMode says whether connections are limited to the declared ones.
type NetworkMode string

const (
	NetworkNone    NetworkMode = "None"
	NetworkReport  NetworkMode = "Report"
	NetworkEnforce NetworkMode = "Enforce"
)

// AdmissionMode is the answer to writes that break the architecture.
type AdmissionMode string

const (
	AdmissionNone AdmissionMode = "None"
	AdmissionWarn AdmissionMode = "Warn"
	AdmissionDeny AdmissionMode = "Deny"
)

// SystemStatus is what the control plane has found.
type SystemStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	// Components are those of the System, nested ones too, sorted, 500 at most.
	Components []ComponentReference `json:"components,omitempty"`
	// Count is the number of components, Conforming that of the ones without a fault.
	Count      int32 `json:"count"`
	Conforming int32 `json:"conforming"`
}

// Conditions of Systems, beside Conforms, Acyclic, LayersRespected, DependenciesAllowed,
// TrafficDeclared and PoliciesApplied, which summarize those of the components.
const (
	// MembersFound: all named components, systems, layers and entrances exist.
	MembersFound = "MembersFound"
	// ComponentsConform: all components conform.
	ComponentsConform = "ComponentsConform"
)
