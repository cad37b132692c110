package schedulerplugin

import (
	_ "embed"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/architecture"
)

// GroupVersion is that of the kind.
var GroupVersion = schema.GroupVersion{Group: "scheduling.knarr.io", Version: "v1alpha1"}

// Resource is that of the kind.
var Resource = GroupVersion.WithResource("schedulerplugins")

// SchedulerPlugin is a plugin of the scheduler in WebAssembly. It is cluster-scoped.
type SchedulerPlugin struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitempty"`
}

// Spec says what is loaded, and how it counts. The definition of the kind has the defaults.
type Spec struct {
	Source Source `json:"source"`
	// SHA256 is the digest of the content at the source, in hexadecimal digits.
	SHA256 string `json:"sha256"`
	// Points are the extension points at which the plugin counts; none means all that it has.
	Points []string `json:"points,omitempty"`
	// Weight multiplies the plugin's scores.
	Weight int64 `json:"weight,omitempty"`
	// Config is passed to the plugin as it is.
	Config string `json:"config,omitempty"`
	Limits Limits `json:"limits,omitempty"`
	// FailurePolicy says what a failure means: the pod is refused, or the plugin is ignored.
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`
	// KeepAnswers lets the scheduler keep the plugin's answers about a node for pods of the same
	// template until the node changes. The plugin then sees no more than these.
	KeepAnswers bool `json:"keepAnswers,omitempty"`
	// Profiles are the scheduler names for which the plugin counts; none means all.
	Profiles []string `json:"profiles,omitempty"`
}

// Source names the place of a module. One field is set.
type Source struct {
	// File is the name of a file in the folder scheduler-plugins of the server's data folder.
	File string `json:"file,omitempty"`
	// OCI is the reference of an artifact in a registry, such as ghcr.io/example/plugin:v1.
	OCI string `json:"oci,omitempty"`
	// ConfigMap names a key of binaryData in a ConfigMap of kube-system.
	ConfigMap *ConfigMapKey `json:"configMap,omitempty"`
}

// ConfigMapKey is a key in a ConfigMap.
type ConfigMapKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// Limits bound a plugin.
type Limits struct {
	// Memory is the maximum of each instance, as a quantity.
	Memory string `json:"memory,omitempty"`
	// DeadlineMilliseconds is the maximum time of the plugin for one pod.
	DeadlineMilliseconds int64 `json:"deadlineMilliseconds,omitempty"`
}

// FailurePolicy says what the scheduler does when a plugin gives no valid answer.
type FailurePolicy string

const (
	Fail   FailurePolicy = "Fail"
	Ignore FailurePolicy = "Ignore"
)

// Status is what the scheduler has loaded.
type Status struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// SHA256 is the digest of the module that decides now; empty if none does.
	SHA256 string `json:"sha256,omitempty"`
	// Points are the extension points at which it counts.
	Points []string `json:"points,omitempty"`
}

// Conditions and their reasons.
const (
	// Loaded is true if the module of the newest spec decides.
	Loaded = "Loaded"
	// Working is false while the plugin is suspended after failures.
	Working = "Working"

	ReasonLoaded      = "Loaded"
	ReasonInvalid     = "InvalidSpec"
	ReasonUnavailable = "SourceUnavailable"
	ReasonDigest      = "DigestMismatch"
	ReasonModule      = "InvalidModule"
	ReasonWorking     = "Answers"
	ReasonSuspended   = "Suspended"
)

//go:embed crds/schedulerplugins.yaml
var definition []byte

// Definition returns the CustomResourceDefinition of the kind.
func Definition() architecture.Definition {
	return architecture.NewDefinition(Resource.GroupResource().String(), definition)
}

// From converts an object of the API, as a client without types has it.
func From(u runtime.Unstructured) (*SchedulerPlugin, error) {
	p := &SchedulerPlugin{}
	return p, architecture.From(u, p)
}
