package architecture

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GroupVersion is that of all kinds of the package.
var GroupVersion = schema.GroupVersion{Group: "architecture.knarr.io", Version: "v1alpha1"}

// Resources of the kinds.
var (
	Components = GroupVersion.WithResource("components")
	Systems    = GroupVersion.WithResource("systems")
)

// ComponentLabel is the label of objects that are made from a Component. Its value is the name of
// the Component, which ComponentAnnotation holds if the name is too long for a label.
const (
	ComponentLabel      = "architecture.knarr.io/component"
	ComponentAnnotation = "architecture.knarr.io/component"
)

// Component is a part of an application in one namespace: some pods with one task.
type Component struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ComponentSpec   `json:"spec"`
	Status ComponentStatus `json:"status,omitempty"`
}

// ComponentSpec is the declaration.
type ComponentSpec struct {
	// Selector selects the component's pods in its namespace. It is never empty.
	Selector metav1.LabelSelector `json:"selector"`
	// Offers are the ports that other components and clients may connect to.
	Offers []Offer `json:"offers,omitempty"`
	// Requires are the components that this one connects to.
	Requires []Requirement `json:"requires,omitempty"`
	// RequiresOutside are servers beyond the cluster that this component connects to.
	RequiresOutside []OutsideRequirement `json:"requiresOutside,omitempty"`
	// Exposed are the names of offers that clients beyond the cluster connect to.
	Exposed []string `json:"exposed,omitempty"`
	// Data are the claims, ConfigMaps and Secrets that the component's pods use.
	Data []Data `json:"data,omitempty"`
	// Access are the rights that the component's service accounts need beside Data.
	Access []AccessRule `json:"access,omitempty"`
	// Owner names the people that answer for the component.
	Owner string `json:"owner,omitempty"`
	// Layer is one of the layers of the component's System.
	Layer string `json:"layer,omitempty"`
	// Levels are promises to the component's users.
	Levels *Levels `json:"levels,omitempty"`
}

// Offer is a port of the component's pods.
type Offer struct {
	Name string `json:"name"`
	// Port is the number, or the name of a container's port.
	Port intstr.IntOrString `json:"port"`
	// Protocol is TCP, UDP or SCTP; TCP by default.
	Protocol string `json:"protocol,omitempty"`
	// Service is the Service in front of the port; "" means each Service that selects the pods.
	Service string `json:"service,omitempty"`
}

// Requirement allows connections to another component.
type Requirement struct {
	Component string `json:"component"`
	// Namespace is that of the component; "" is the own one.
	Namespace string `json:"namespace,omitempty"`
	// Port is the name of an offer; "" means all offers.
	Port string `json:"port,omitempty"`
	// Optional means that the component works without the required one.
	Optional bool `json:"optional,omitempty"`
}

// OutsideRequirement is a server beyond the cluster. It has a CIDR or a host.
type OutsideRequirement struct {
	Name string `json:"name"`
	CIDR string `json:"cidr,omitempty"`
	// Host is a DNS name. NetworkPolicies cannot express one, so nothing enforces it.
	Host string `json:"host,omitempty"`
	// Ports are those of the server; none means all.
	Ports []OutsidePort `json:"ports,omitempty"`
}

// OutsidePort is a port of a server beyond the cluster.
type OutsidePort struct {
	Port int32 `json:"port"`
	// Protocol is TCP, UDP or SCTP; TCP by default.
	Protocol string `json:"protocol,omitempty"`
}

// Access is the use of data.
type Access string

const (
	Read  Access = "Read"
	Write Access = "Write"
)

// Data names exactly one claim, ConfigMap or Secret in the component's namespace.
type Data struct {
	Claim     string `json:"claim,omitempty"`
	ConfigMap string `json:"configMap,omitempty"`
	Secret    string `json:"secret,omitempty"`
	// Access is Read by default.
	Access Access `json:"access,omitempty"`
}

// AccessRule names rights as a rule of a Role does.
type AccessRule struct {
	APIGroups []string `json:"apiGroups"` // "" is the core group, * all groups
	Resources []string `json:"resources"` // such as pods or pods/log, * for all
	Verbs     []string `json:"verbs"`     // such as create, * for all
	// ResourceNames limits the rule to objects of these names; none means all.
	ResourceNames []string `json:"resourceNames,omitempty"`
}

// Levels are promises. The cluster checks Availability and MinReady.
type Levels struct {
	// Availability is the least percentage of desired pods that are ready; 0 promises nothing.
	Availability int32 `json:"availability,omitempty"`
	// MinReady is the least number of ready pods.
	MinReady int32 `json:"minReady,omitempty"`
	// Latency is documentation, such as "p99 below 200 ms".
	Latency string `json:"latency,omitempty"`
}

// ComponentStatus is what the control plane has found.
type ComponentStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	// Workloads are the owners of the selected pods, 20 at most.
	Workloads []Workload `json:"workloads,omitempty"`
	// Ready is the number of ready pods, Desired that of all wanted ones.
	Ready   int32 `json:"ready"`
	Desired int32 `json:"desired"`
	// Systems are the Systems that contain the component, directly or nested.
	Systems []string `json:"systems,omitempty"`
	// Policies are the NetworkPolicies that the control plane has made from the component.
	Policies []string `json:"policies,omitempty"`
}

// Workload is a Deployment, StatefulSet, DaemonSet, Job, CronJob, or a pod without one.
type Workload struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Ready   int32  `json:"ready"`
	Desired int32  `json:"desired"`
}

// Conditions of Components. Each is True if all is well. Unknown means that there is nothing to
// judge by.
const (
	// Conforms is False if one of the others is False.
	Conforms = "Conforms"
	// RequirementsMet: the required components and offers exist and have ready pods.
	RequirementsMet = "RequirementsMet"
	// Acyclic: the component is not part of a circle of requirements.
	Acyclic = "Acyclic"
	// LayersRespected: all required components are in the same layer or in lower ones.
	LayersRespected = "LayersRespected"
	// DependenciesAllowed: no System forbids a requirement, or has its boundary crossed by it.
	DependenciesAllowed = "DependenciesAllowed"
	// TrafficDeclared: a requirement declares each connection that nodes have seen.
	TrafficDeclared = "TrafficDeclared"
	// AccessMinimal: the service accounts may read no Secrets and ConfigMaps, and write nothing,
	// beyond the declared data.
	AccessMinimal = "AccessMinimal"
	// LevelsKept: the checkable levels hold now.
	LevelsKept = "LevelsKept"
	// PoliciesApplied: the NetworkPolicies that a System wants exist, and say all that is declared.
	PoliciesApplied = "PoliciesApplied"
)
